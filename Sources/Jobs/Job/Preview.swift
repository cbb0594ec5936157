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
