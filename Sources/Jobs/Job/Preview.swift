/// The pixels decoded so far of an image that is still loading, with its final dimensions and orientation.
package struct Preview: Sendable, Equatable {
  /// A file in the format ``format``.
  package var bytes: [UInt8]
  /// JPEG for scans of a JPEG, PNG for passes of a PNG.
  package var format: ImageFormat
  /// The number of scans or passes that the preview shows, from 1.
  package var scan: Int

  package init(bytes: [UInt8], format: ImageFormat, scan: Int) {
    self.bytes = bytes
    self.format = format
    self.scan = scan
  }
}

/// Requests data from other instances that only they have.
package protocol InstancePeers: Sendable {
  /// Returns the newest preview of a job that another instance loads; nil if there is none or the instance
  /// does not answer.
  ///
  /// - Parameters:
  ///   - address: The address of the other instance.
  ///   - authorization: The client's `Authorization` field, which the other instance checks again.
  func preview(of id: JobID, at address: String, authorization: String?) async -> Preview?
}
