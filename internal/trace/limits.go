package trace

// maxLanes bounds the lanes of a process; what would need more shares the last one.
const maxLanes = 1024
