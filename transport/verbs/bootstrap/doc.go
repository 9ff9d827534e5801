// Package bootstrap exchanges the offers of verbs channels over
// /tensorflow.VerbsService/GetRemoteAddress (PROTOCOL.md section 9): the Exchanger
// of package verbstransport, and the service that answers it.
//
// The message has TensorFlow's fields 1 to 3, filled from rail 0, so that its tools
// can read them; what counts are the fields from 16 up. A message without them
// comes from no Tryst server, and is answered FailedPrecondition.
//
// Nothing in a message is believed before it is checked, and nothing in one stops
// a process: what is wrong is an error to its sender.
package bootstrap
