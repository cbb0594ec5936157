internal import CCodecs
internal import Jobs

/// Owns one C reader: it lives and is freed with this.
protocol ImageReader: AnyObject {
  /// Decodes one slice of the bytes that were not consumed before and those that follow them.
  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep
  /// What is known so far; its pointers live as long as the reader.
  var picture: CodecPicture { get }
  /// The library's word for what went wrong.
  var message: String { get }
  /// Bounds what the file can make the reader do again and again, once the header is known.
  func bound(_ header: ImageHeader, by limits: DecodeLimits)
}
