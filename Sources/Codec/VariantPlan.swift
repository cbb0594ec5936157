internal import CCodecs
internal import Jobs

/// The variants that one decode makes on its way: the same rows run into all of them.
///
/// They are an addition: where they can't be made so, for want of memory or because the format is read otherwise, they
/// are made of the kept bytes later, and the decode goes on without them.
final class VariantPlan {
  private enum State {
    case planned
    case rendering([VariantPipeline], orientation: Int)
    /// As far as they could be made.
    case finished([[UInt8]?])
  }

  private let variants: [Variant]
  private var state = State.planned
  private var files: [[UInt8]] = []
  private var image = ImageDescription(format: .jpeg, width: 1, height: 1)

  init(_ variants: [Variant]) { self.variants = variants }

  /// Once the header is known: reckons what they take and has the reader leave out what none of them shows.
  /// - Returns: bytes beside those that decoding takes; nil where they don't fit.
  func prepare(_ header: ImageHeader, _ reader: any ImageReader, maxMemory: Int) -> Int? {
    image = ImageDescription(format: header.format, width: header.width, height: header.height)
    // A PNG tells its orientation later.
    let needed = [1, 6].map { orientation in
      image.orientation = orientation
      return variants.reduce(0) { $0 + VariantPipeline.memory(for: $1, from: image) }
    }
    let all = (needed.max() ?? 0) + Self.profile
    guard header.decodingMemory + all <= maxMemory else {
      drop()
      return nil
    }
    image.orientation = reader.picture.orientation
    let least = variants.map { VariantGeometry(of: $0, from: image).leastRead }
    reader.scale(
      toAtLeast: (least.map(\.width).max() ?? 0, least.map(\.height).max() ?? 0))
    return all
  }

  /// The profile while it is gathered and joined, and what Little CMS makes of it.
  private static let profile = 16 << 20

  /// Takes the next rows.
  func take(_ reader: any ImageReader) {
    do throws(CodecError) {
      if case .planned = state { try begin(reader) }
      guard case .rendering(let pipelines, _) = state else { return }
      let rows = reader.rows
      for pipeline in pipelines { try pipeline.take(rows) }
    } catch {
      drop()
    }
  }

  private func begin(_ reader: any ImageReader) throws(CodecError) {
    let (layout, orientation) = (reader.layout, reader.picture.orientation)
    image.orientation = orientation
    var pipelines: [VariantPipeline] = []
    for variant in variants { pipelines.append(try VariantPipeline(layout, image, variant)) }
    state = .rendering(pipelines, orientation: orientation)
  }

  /// After the picture's end: writes for some milliseconds.
  /// - Parameter picture: what the reader knows now.
  /// - Returns: whether there is nothing left to do.
  func finish(_ picture: CodecPicture) -> Bool {
    guard case .rendering(let pipelines, let orientation) = state else {
      if case .planned = state { drop() }
      return true
    }
    // An EXIF block may come after the pixels.
    guard orientation == picture.orientation else {
      drop()
      return true
    }
    do throws(CodecError) {
      guard let file = try pipelines[files.count].finish() else { return false }
      files.append(file)
    } catch {
      drop()
      return true
    }
    guard files.count == pipelines.count else { return false }
    state = .finished(files)
    return true
  }

  /// Frees all that is held.
  func drop() {
    files = []
    state = .finished(variants.map { _ in nil })
  }

  /// The files, in the order of the variants; nil where the decode could not make them.
  var made: [[UInt8]?] {
    if case .finished(let files) = state { files } else { variants.map { _ in nil } }
  }
}
