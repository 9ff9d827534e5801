package fileio

// maxQuoted is the number of bytes of a foreign text that a message quotes: enough
// to recognise it, too few for a hostile name to fill a log.
const maxQuoted = 120
