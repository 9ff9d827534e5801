package sources

// maxFile bounds the YAML file, in bytes. A cluster of some thousand tasks fits.
const maxFile = 1 << 18

// maxFaults is how many errors of one file are reported. A file with more is probably not a
// file of settings.
const maxFaults = 20

// maxName is how many bytes of an unknown name are compared with the known ones.
const maxName = 200
