// Package bootstrap exchanges the offers of verbs channels over
// /tensorflow.VerbsService/GetRemoteAddress (PROTOCOL.md section 9). Package
// verbstransport makes its calls by the Exchanger, and answers those of peers by the service.
//
// The message has TensorFlow's fields 1 to 3, filled from rail 0 for TensorFlow's tools.
// Tryst reads the fields from 16 up. A message without them does not come from a Tryst
// server, and gets FailedPrecondition.
//
// Every field is checked before it is used. A message with an invalid field gets an error
// and has no effect.
package bootstrap
