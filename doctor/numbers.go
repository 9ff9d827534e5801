package doctor

import "time"

// dialTimeout bounds the question to one peer. A host that is there answers in
// milliseconds; one behind a filter that drops never does.
const dialTimeout = 5 * time.Second

// peersAtOnce bounds how many peers are asked at the same time, so that a large
// cluster is no burst.
const peersAtOnce = 32

// maxFile bounds what is read of one file of sysfs, in bytes: a page.
const maxFile = 4096
