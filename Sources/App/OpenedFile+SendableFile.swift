internal import HTTP
package import Store

/// Lets the HTTP server send a stored image with sendfile(2), without copying it into the process.
extension OpenedFile: SendableFile {}
