import Codec
import Jobs
import TestSupport

/// A variant that was rendered to its end.
struct Rendered {
  var image = ImageDescription(format: .png, width: 1, height: 1)
  var result: Result<[UInt8], CodecError>
  var steps = 0

  /// - Parameter described: the description from an earlier decode; nil means to decode the file here.
  init(_ bytes: [UInt8], as variant: Variant, described: ImageDescription? = nil) {
    do throws(CodecError) {
      if let described { image = described } else { image = try Decoding(bytes).result.get() }
      let rendering = StreamingRenderer().render(bytes, of: image, as: variant)
      while true {
        steps += 1
        guard let file = try rendering.file() else { continue }
        result = .success(file)
        return
      }
    } catch {
      result = .failure(error)
    }
  }

  var file: [UInt8]? { try? result.get() }
}

extension Variant {
  init(
    _ format: OutputFormat, _ width: Int? = nil, _ height: Int? = nil, fit: Fit = .contain,
    background: Color? = nil
  ) {
    self.init(format: format)
    (self.width, self.height, self.fit, self.background) = (width, height, fit, background)
  }
}
