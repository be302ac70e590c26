"""Numbers as logs print them: plain, as text, with a unit behind, or wrapped as NumPy prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

_NOTHING = ("", "-", "--", "nan", "+nan", "-nan", "none", "null", "na", "n/a", "<na>")
_WRAPPED = (
    r"^(?:(?:np|numpy|torch|jnp)\.)?(?:float\d*|int\d*|bfloat16|tensor|Tensor|array|Array|Decimal)\((.*)\)$"
)
_LISTED = r"^\[\s*([^\[\],]*)\s*\]$"


def as_numbers(series: pl.Series) -> tuple[pl.Series, dict[str, int]]:
    """Turn a column into numbers.

    Parameters
    ----------
    series : polars.Series
        Of texts or numbers.

    Returns
    -------
    (polars.Series of Float64, dict of str to int)
        Null where there is no number, and how many values were ``wrapped`` (``np.float64(0.1)``), ``quoted``,
        in percent (``percent``, read as a share), infinite (null as well) or text that is none (``words``).

    Examples
    --------
    >>> import polars as pl
    >>> numbers, forms = as_numbers(pl.Series(["np.float64(0.5)", "'7.5'", "12%", "nan", "late"]))
    >>> numbers.to_list(), forms
    ([0.5, 7.5, 0.12, None, None], {'wrapped': 1, 'quoted': 1, 'percent': 1, 'words': 1})
    """
    import polars as pl

    if series.dtype == pl.Boolean or not (series.dtype.is_numeric() or series.dtype == pl.String):
        texts = pl.Series(series.name, [None if each is None else str(each) for each in series], pl.String)
        return as_numbers(texts)
    forms: dict[str, int] = {}
    if series.dtype == pl.String:
        numbers = _from_text(series.str.strip_chars(), forms)
    else:
        numbers = series.cast(pl.Float64)
    numbers = numbers.fill_nan(None)
    endless = int(numbers.is_infinite().sum() or 0)
    if endless:
        forms["infinite"] = endless
        numbers = pl.select(pl.when(numbers.is_finite()).then(numbers)).to_series()
    return numbers.alias(series.name), forms


def _from_text(text: pl.Series, forms: dict[str, int]) -> pl.Series:
    """Read texts, and count those that are no plain numbers."""
    import polars as pl

    plain = text.cast(pl.Float64, strict=False)
    odd = plain.is_null() & text.is_not_null() & ~text.str.to_lowercase().is_in(list(_NOTHING))
    if not odd.any():
        return plain
    places = odd.arg_true()
    rest = text.gather(places)

    def count(form: str, found: pl.Series) -> None:
        if found.any():
            forms[form] = forms.get(form, 0) + int(found.sum())

    bare = rest.str.replace(_WRAPPED, "${1}").str.replace(_LISTED, "${1}")
    count("wrapped", bare != rest)
    bare = bare.str.replace(r",\s*(?:dtype|device|grad_fn|requires_grad)=.*$", "")
    unquoted = bare.str.strip_chars("'\"")
    count("quoted", unquoted != bare)
    shares = unquoted.str.ends_with("%")
    count("percent", shares)
    unquoted = unquoted.str.replace(r"%$", "").str.replace(r"^([+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?)$", "${1}")
    grouped = unquoted.str.contains(r"^[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?$")
    count("grouped", grouped)
    found = unquoted.str.replace_all(",", "").cast(pl.Float64, strict=False)
    found = pl.select(pl.when(shares).then(found / 100).otherwise(found)).to_series()
    count("words", found.is_null() & ~unquoted.str.to_lowercase().is_in(list(_NOTHING)))
    return plain.scatter(places, found)


def forms_in_words(forms: dict[str, int]) -> str:
    """Say in what forms numbers came.

    Examples
    --------
    >>> forms_in_words({"wrapped": 2, "words": 1})
    '2 as np.float64(...) or the like, 1 not a number'
    """
    words: dict[str, Any] = {
        "wrapped": "as np.float64(...) or the like",
        "quoted": "in quotes",
        "percent": "in percent, read as shares",
        "grouped": "with commas between thousands",
        "infinite": "infinite",
        "words": "not a number",
    }
    return ", ".join(f"{count} {words[form]}" for form, count in forms.items())
