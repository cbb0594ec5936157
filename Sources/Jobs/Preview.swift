/// The picture so far, of an image that is still on its way: at its final dimensions, oriented as it will be.
public struct Preview: Sendable, Equatable {
  /// A file of ``format``.
  public var bytes: [UInt8]
  /// JPEG for scans of a JPEG, PNG for passes of a PNG.
  public var format: ImageFormat
  /// How many of the image's scans or passes it shows, from 1.
  public var scan: Int

  /// A preview.
  public init(bytes: [UInt8], format: ImageFormat, scan: Int) {
    self.bytes = bytes
    self.format = format
    self.scan = scan
  }
}

/// Asks other instances of the service for what they alone have.
public protocol InstancePeers: Sendable {
  /// The newest preview of a job that another instance loads; nil: there is none, or no answer.
  ///
  /// - Parameters:
  ///   - address: where it is reached.
  ///   - authorization: the client's field of that name, as it holds there too.
  func preview(of id: JobID, at address: String, authorization: String?) async -> Preview?
}
