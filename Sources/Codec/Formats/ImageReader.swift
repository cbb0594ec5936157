internal import CCodecs
internal import Jobs

/// Owns one C reader and frees it.
protocol ImageReader: AnyObject {
  /// Decodes one slice. The bytes are those that the previous call did not consume, followed by new ones.
  func step(_ bytes: UnsafeBufferPointer<UInt8>, ended: Bool) -> CodecStep
  /// The image's properties, as far as they are known. The pointers live as long as the reader.
  var properties: CodecImageInfo { get }
  /// The library's message for the fault.
  var message: String { get }
  /// Limits the scans or frames that the file may make the reader decode. Called once the header is known.
  func limit(_ header: ImageHeader, by limits: DecodeLimits)
  /// Limits the reader to rows: it keeps nothing for previews and skips an animation next to the default image. Call
  /// it before the first step.
  func limitToRows()
  /// Makes the next steps encode a preview of the scans counted so far, with this EXIF orientation.
  func requestPreview(orientation: Int)
  /// The preview, once it is complete. Its pointer is valid until the reader is used again.
  var preview: CodecPreview { get }
  /// The preview's format, if it differs from the image's.
  var previewFormat: ImageFormat? { get }
  /// Frees the preview, or stops encoding it.
  func discardPreview()
  /// Makes the reader return rows of samples. Call it before the first step.
  /// - Returns: false if this reader never returns rows.
  func requestRows() -> Bool
  /// Decodes at shorter sides: divided by 1, 2, 4 or 8. Call it once the header is known.
  func scale(by factor: Int)
  /// The layout of the rows' samples, valid after the first step that returned rows.
  var layout: SampleLayout { get }
  /// The next rows of each plane, valid until the next step.
  var rows: [SampleRows] { get }
}

extension ImageReader {
  func limitToRows() {}
  func requestPreview(orientation: Int) {}
  var preview: CodecPreview { CodecPreview() }
  var previewFormat: ImageFormat? { nil }
  func discardPreview() {}
  func requestRows() -> Bool { false }
  func scale(by factor: Int) {}
  var layout: SampleLayout { SampleLayout(colours: .RGB, channels: 1, planes: []) }
  var rows: [SampleRows] { [] }
}
