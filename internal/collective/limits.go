package collective

import "time"

// Bounds on what peers can make this process keep.
const (
	// maxGroups is how many groups a leader or member knows. A complete group is
	// forgotten for a new one, or one that nobody waits for, of the caller that holds most (held); its
	// members resolve it again.
	maxGroups = 4096
	// maxGroupSize is the largest group_size. It bounds the record of a group.
	maxGroupSize = 16384
	// maxMembers is how many devices the groups may have in all. When there are no groups to forget,
	// the devices whose calls were cancelled make room.
	maxMembers = 65536
	// maxAttributes is the largest message, in bytes, that describes a device of a group.
	maxAttributes = 4096
	// maxKey is the length of the longest key of a buffer, in bytes.
	maxKey = 1024
	// maxInstances is how many operations a leader or member knows. The oldest of the
	// caller that holds most is forgotten for a new one.
	maxInstances = 16384
	// maxGraphs is how many graph keys have a sequence of step ids at a leader. The oldest of
	// the caller that holds most is forgotten for a new one.
	maxGraphs = 65536
	// endedSteps is how many steps that have ended are remembered, with or without operations, so that
	// a late operation or request for a buffer ends at once. They take some 3 MiB.
	endedSteps = 65536
)

// DefaultLeaderTimeout is the default of Options.LeaderTimeout: as long as a receive looks for its
// peer.
const DefaultLeaderTimeout = 10 * time.Second

// DefaultPeerTimeout is the default of Options.PeerTimeout: as long as a receive looks for its peer.
const DefaultPeerTimeout = 10 * time.Second

// looks is how often a member that is waited for is called in Options.PeerTimeout. An answer may then
// take three quarters of it: a process under load answers in time.
const looks = 4

// leaderRetry is how long a member waits before it calls a leader again that was not reached.
const leaderRetry = 200 * time.Millisecond

// askTimeout bounds the request of a call that has given up a group to the leader for the absent members.
const askTimeout = 500 * time.Millisecond

// maxNamed is how many members an error names.
const maxNamed = 10

// DefaultChunk is the default of Options.Chunk: TensorFlow's default of recv_buf_max_chunk.
const DefaultChunk = 4096
