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
  /// Limits the reader to rows: it keeps nothing for previews and skips an animation next to the default image. Call it
  /// before the first step.
  func wantOnlyRows()
  /// Has the next steps make a preview of the scans that ``picture`` tells of, with EXIF's orientation.
  func wantPreview(orientation: Int)
  /// The preview, once it is whole; its pointer lives until the reader is used again.
  var preview: CodecPreview { get }
  /// What that is, where it is not of the image's format.
  var previewFormat: ImageFormat? { get }
  /// Frees it, or ends it.
  func dropPreview()
  /// Has it tell rows of samples; to be called before the first step.
  /// - Returns: false where it never does.
  func wantRows() -> Bool
  /// Has it leave out detail: sides become so many times shorter, 1, 2, 4 or 8; once the header is known.
  func scale(by factor: Int)
  /// How the rows' samples come, after the first step that told of some.
  var layout: SampleLayout { get }
  /// Next rows of each plane, until the next step.
  var rows: [SampleRows] { get }
}

extension ImageReader {
  func wantOnlyRows() {}
  func wantPreview(orientation: Int) {}
  var preview: CodecPreview { CodecPreview() }
  var previewFormat: ImageFormat? { nil }
  func dropPreview() {}
  func wantRows() -> Bool { false }
  func scale(by factor: Int) {}
  var layout: SampleLayout { SampleLayout(colours: .RGB, channels: 1, planes: []) }
  var rows: [SampleRows] { [] }
}
