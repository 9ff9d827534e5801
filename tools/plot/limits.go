package main

// These bound what is read: the lines are of a benchmark, so more is a wrong file.
const (
	maxFile   = 16 << 20 // bytes of a file
	maxRows   = 1000     // lines of a file
	maxText   = 120      // runes of a name or another text
	maxTitle  = 200      // runes of a title
	minRatio  = 1e-6     // ratios are drawn on a logarithmic axis within these
	maxRatio  = 1e6
	maxFigure = 1e15 // of the other numbers
)
