/// Stores an image that a client uploads. Used by one task at a time. If the capture is released before it
/// was submitted, its bytes are deleted.
package protocol ImageCapture: AnyObject, Sendable {
  /// Appends bytes. Returns when there is space for more, so that a slow disk slows the client down.
  func write(_ bytes: [UInt8]) async throws(JobsError)

  /// Ends the image. The bytes become durable when the capture is submitted.
  func finish() async throws(JobsError) -> CapturedImage
}

/// The properties of an uploaded image before it is decoded.
package struct CapturedImage: Sendable, Equatable {
  /// The SHA-256 of the bytes.
  package let digest: ImageDigest
  /// The number of bytes; may be 0.
  package let bytes: Int

  package init(digest: ImageDigest, bytes: Int) {
    self.digest = digest
    self.bytes = bytes
  }
}
