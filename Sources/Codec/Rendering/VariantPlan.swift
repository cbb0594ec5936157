internal import CCodecs
internal import Jobs

/// The variants that are made during one decode. Each row that the decoder returns goes into all of them.
///
/// A variant that cannot be made this way does not stop the decode: it is made later from the stored bytes. Causes
/// are too little memory and a format that is read differently.
final class VariantPlan {
  private enum Item {
    case wanted(VariantRequest)
    case planned(Variant)
    case rendering(VariantPipeline)
    case made([UInt8])
    case failed(CodecError)
  }

  private var items: [Item]
  /// The orientation, if it is known in advance. Nil means the one that the file gives before its pixels.
  private let orientation: Int?
  private var image = ImageDescription(format: .jpeg, width: 1, height: 1)

  init(_ variants: [VariantRequest], orientation: Int? = nil) {
    items = variants.map(Item.wanted)
    self.orientation = orientation
  }

  /// For variants of an image whose orientation is known.
  init(_ variants: [Variant], of image: ImageDescription) {
    items = variants.map(Item.planned)
    orientation = image.orientation
    self.image = image
  }

  /// The least size at which a reader may decode the image: twice the size of the largest variant.
  var leastRead: (width: UInt32, height: UInt32) {
    let least = planned.map { VariantGeometry(of: $0, from: image).leastRead }
    return (least.map(\.width).max() ?? 0, least.map(\.height).max() ?? 0)
  }

  /// How many times shorter the sides may be so that they suffice for all variants.
  private var shrink: Int {
    let all = planned.map { variant in
      variant.shrink ?? VariantGeometry(of: variant, from: image).shrink(reading: image.format)
    }
    return all.min() ?? 1
  }

  /// Computes the memory that the variants need, and makes the reader skip detail that none of them shows. Call it
  /// once the header is known.
  /// - Returns: bytes in addition to those of decoding; 0 if they exceed `maxMemory` and no variants are made.
  func prepare(_ header: ImageHeader, _ reader: any ImageReader, maxMemory: Int) -> Int {
    for case (let index, .wanted(let request)) in items.enumerated() {
      // Every format can be written here, so transparency does not affect the choice.
      items[index] = .planned(
        request.variant(
          of: header.format, isTransparent: false, formats: Set(OutputFormat.allCases)))
    }
    let variants = planned
    guard !variants.isEmpty else { return 0 }
    image = ImageDescription(format: header.format, width: header.width, height: header.height)
    // A PNG may give its orientation later, so both directions are computed.
    let needed = [1, 6].map { orientation in
      image.orientation = orientation
      return variants.reduce(Self.profile) { $0 + VariantPipeline.memory(for: $1, from: image) }
    }
    let all = needed.max() ?? 0
    guard header.decodingMemory + all <= maxMemory else {
      fail(.tooMuchMemory(bytes: header.decodingMemory + all, limit: maxMemory))
      return 0
    }
    image.orientation = orientation ?? reader.properties.orientation
    reader.scale(by: shrink)
    return all
  }

  /// The profile's segments, the joined profile, and what Little CMS computes from it.
  private static let profile = 16 << 20

  private var planned: [Variant] {
    items.compactMap { if case .planned(let variant) = $0 { variant } else { nil } }
  }

  /// Adds the next rows that the reader decoded.
  func addRows(from reader: any ImageReader) {
    if !planned.isEmpty { image.orientation = orientation ?? reader.properties.orientation }
    add(reader.rows, layout: { reader.layout })
  }

  /// Adds the next rows.
  func add(_ rows: [SampleRows], layout source: () -> SampleLayout) {
    // One layout for all variants, so that they share its color transform.
    lazy var layout = source()
    for index in items.indices {
      update(index) { item throws(CodecError) in
        if case .planned(let variant) = item {
          item = .rendering(try VariantPipeline(layout, image, variant))
        }
        if case .rendering(let pipeline) = item { try pipeline.add(rows) }
      }
    }
  }

  private func update(_ index: Int, _ body: (inout Item) throws(CodecError) -> Void) {
    do throws(CodecError) { try body(&items[index]) } catch { items[index] = .failed(error) }
  }

  /// Encodes for some milliseconds. Call it after the end of the image.
  /// - Parameter info: what the reader knows at the end.
  /// - Returns: true if nothing is left to do.
  func finish(_ info: CodecImageInfo) -> Bool {
    // An EXIF block may follow the pixels.
    if orientation == nil, image.orientation != info.orientation {
      fail(.broken(format: image.format, detail: "the EXIF orientation follows the pixels"))
    }
    if !planned.isEmpty { fail(.cutShort) }
    return write()
  }

  /// Encodes for some milliseconds. Call it after the last row.
  /// - Returns: true if nothing is left to do.
  func write() -> Bool {
    for index in items.indices {
      guard case .rendering(let pipeline) = items[index] else { continue }
      update(index) { item throws(CodecError) in
        if let file = try pipeline.finish() { item = .made(file) }
      }
      return false
    }
    return true
  }

  /// Marks all variants that are not finished as failed.
  func fail(_ error: CodecError) {
    for index in items.indices {
      if case .made = items[index] { continue }
      items[index] = .failed(error)
    }
  }

  /// Whether all variants have failed.
  var hasFailed: Bool { items.allSatisfy { if case .failed = $0 { true } else { false } } }

  /// The files in the order of the variants, or the reasons why the decode could not make them.
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
