package soft

// maxEvents limits the asynchronous events that wait for NextEvent. A full queue loses the oldest.
const maxEvents = 256
