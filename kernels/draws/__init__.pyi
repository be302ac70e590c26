from .length_table import LengthTable as LengthTable
from .philox import normals as normals, philox_words as philox_words, uniforms as uniforms
from .sampler import (
    make_length_table as make_length_table,
    sample_lengths as sample_lengths,
    sample_rows as sample_rows,
)
