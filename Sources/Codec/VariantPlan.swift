internal import CCodecs
internal import Jobs

/// The variants that one decode makes on its way: the same rows run into all of them.
///
/// They are an addition: what can't be made so, for want of memory or because the format is read otherwise, is made of
/// the kept bytes later, and the decode goes on without it.
final class VariantPlan {
  private enum Item {
    case wanted(VariantRequest)
    case planned(Variant)
    case rendering(VariantPipeline)
    case made([UInt8])
    case failed(CodecError)
  }

  private var items: [Item]
  /// Known before; nil: what the file says before its pixels.
  private let orientation: Int?
  private var image = ImageDescription(format: .jpeg, width: 1, height: 1)

  init(_ variants: [VariantRequest], orientation: Int? = nil) {
    items = variants.map(Item.wanted)
    self.orientation = orientation
  }

  /// Variants of a picture whose orientation is known.
  init(_ variants: [Variant], of image: ImageDescription) {
    items = variants.map(Item.planned)
    orientation = image.orientation
    self.image = image
  }

  /// Twice what the largest of them shows: the least that a reader may scale the picture down to.
  var leastRead: (width: UInt32, height: UInt32) {
    let least = planned.map { VariantGeometry(of: $0, from: image).leastRead }
    return (least.map(\.width).max() ?? 0, least.map(\.height).max() ?? 0)
  }

  /// How many times shorter sides are enough for all of them.
  private var shrink: Int {
    let all = planned.map { variant in
      variant.shrink ?? VariantGeometry(of: variant, from: image).shrink(reading: image.format)
    }
    return all.min() ?? 1
  }

  /// Once the header is known: reckons what they take and has the reader leave out what none of them shows.
  /// - Returns: bytes beside those that decoding takes; 0 where they don't fit, and none are made.
  func prepare(_ header: ImageHeader, _ reader: any ImageReader, maxMemory: Int) -> Int {
    for case (let index, .wanted(let request)) in items.enumerated() {
      // What is decoded here is what can be written, too: transparency decides nothing.
      items[index] = .planned(
        request.variant(
          of: header.format, isTransparent: false, formats: Set(OutputFormat.allCases)))
    }
    let variants = planned
    guard !variants.isEmpty else { return 0 }
    image = ImageDescription(format: header.format, width: header.width, height: header.height)
    // A PNG tells its orientation later.
    let needed = [1, 6].map { orientation in
      image.orientation = orientation
      return variants.reduce(Self.profile) { $0 + VariantPipeline.memory(for: $1, from: image) }
    }
    let all = needed.max() ?? 0
    guard header.decodingMemory + all <= maxMemory else {
      fail(.tooMuchMemory(bytes: header.decodingMemory + all, limit: maxMemory))
      return 0
    }
    image.orientation = orientation ?? reader.picture.orientation
    reader.scale(by: shrink)
    return all
  }

  /// The profile while it is gathered and joined, and what Little CMS makes of it.
  private static let profile = 16 << 20

  private var planned: [Variant] {
    items.compactMap { if case .planned(let variant) = $0 { variant } else { nil } }
  }

  /// Takes the next rows.
  func take(_ reader: any ImageReader) {
    if !planned.isEmpty { image.orientation = orientation ?? reader.picture.orientation }
    take(reader.rows, of: { reader.layout })
  }

  /// Takes the next rows.
  func take(_ rows: [SampleRows], of source: () -> SampleLayout) {
    // One for all of them, as they share its colour transform.
    lazy var layout = source()
    for index in items.indices {
      change(index) { item throws(CodecError) in
        if case .planned(let variant) = item {
          item = .rendering(try VariantPipeline(layout, image, variant))
        }
        if case .rendering(let pipeline) = item { try pipeline.take(rows) }
      }
    }
  }

  private func change(_ index: Int, _ body: (inout Item) throws(CodecError) -> Void) {
    do throws(CodecError) { try body(&items[index]) } catch { items[index] = .failed(error) }
  }

  /// After the picture's end: writes for some milliseconds.
  /// - Parameter picture: what the reader knows now.
  /// - Returns: whether there is nothing left to do.
  func finish(_ picture: CodecPicture) -> Bool {
    // An EXIF block may come after the pixels.
    if orientation == nil, image.orientation != picture.orientation {
      fail(.broken(format: image.format, detail: "turned after its pixels"))
    }
    if !planned.isEmpty { fail(.cutShort) }
    return write()
  }

  /// After the last row: writes for some milliseconds.
  /// - Returns: whether there is nothing left to do.
  func write() -> Bool {
    for index in items.indices {
      guard case .rendering(let pipeline) = items[index] else { continue }
      change(index) { item throws(CodecError) in
        if let file = try pipeline.finish() { item = .made(file) }
      }
      return false
    }
    return true
  }

  /// Makes none of those that aren't made.
  func fail(_ error: CodecError) {
    for index in items.indices {
      if case .made = items[index] { continue }
      items[index] = .failed(error)
    }
  }

  /// Whether none can be made any more.
  var isLost: Bool { items.allSatisfy { if case .failed = $0 { true } else { false } } }

  /// The files, in the order of the variants, or why the decode could not make them.
  var results: [Result<[UInt8], CodecError>] {
    items.map { item in
      switch item {
      case .made(let file): .success(file)
      case .failed(let error): .failure(error)
      case .wanted, .planned, .rendering: .failure(.cutShort)
      }
    }
  }
}
