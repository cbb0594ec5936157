/// An image that a client is sending, being kept: by one task, in order. Letting go of it before it was submitted
/// leaves nothing behind.
public protocol ImageCapture: AnyObject, Sendable {
  /// Adds bytes. Returns once there is room for more, so that a slow disk holds the client back.
  func write(_ bytes: [UInt8]) async throws(JobsError)

  /// Says that these were all. Nothing is durable yet: submitting the capture makes it so.
  func finish() async throws(JobsError) -> CapturedImage
}

/// What is known of a captured image before it is decoded.
public struct CapturedImage: Sendable, Equatable {
  /// The SHA-256 of its bytes.
  public let digest: ImageDigest
  /// How many there are; may be none.
  public let bytes: Int

  /// A captured image.
  public init(digest: ImageDigest, bytes: Int) {
    self.digest = digest
    self.bytes = bytes
  }
}
