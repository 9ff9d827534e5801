package discovery

// maxFile is how much of one file of sysfs is read, in bytes. The kernel gives at
// most a page; more is not sysfs.
const maxFile = 4096
