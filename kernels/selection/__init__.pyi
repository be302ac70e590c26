from .kim_nelson import (
    Selection as Selection,
    select_best as select_best,
)
