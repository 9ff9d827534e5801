// Package capi calls the C functions of a TensorFlow library, opened at run time, without cgo.
//
// Nothing here decides anything: each method is one C function, or the few that together make or
// read one tensor. Objects of the library are Go values that hold a C pointer:
//
//	Context   TFE_Context*              Delete, after all its Handles
//	Handle    TFE_TensorHandle*         DeleteHandle, by the holder
//	Tensor    TF_Tensor*                Free, by the holder; its memory is valid until then
//	Cancel    TFE_CancellationManager*  DeleteCancel, after the run that it was given to
//
// Memory that Lend gives to the library belongs to it until it calls the one callback of this
// package, perhaps long after the run, and from a thread of its own.
package capi
