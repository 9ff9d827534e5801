package membership

// maxLeft bounds the tasks that are remembered as having left: about a megabyte. One that is forgotten is refused as a
// task that the cluster does not have.
const maxLeft = 10_000
