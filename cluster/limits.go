package cluster

import "math"

const (
	// maxNumber is the highest replica, task or device number: TensorFlow
	// keeps them in a C int, and ClusterDef has them as int32.
	maxNumber = math.MaxInt32

	// maxQuoted is how many bytes of a rejected input an error shows. Names are shorter; the
	// text of a hostile peer may be longer.
	maxQuoted = 200
)
