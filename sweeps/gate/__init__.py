"""The admission ledger and the lag rules as an object for a trainer of your own."""
