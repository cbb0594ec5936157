internal import Jobs

/// The query parameters that request a variant of an image.
struct VariantQuery: Sendable, Equatable {
  /// The requested format.
  enum Format: Sendable, Equatable {
    /// No format is requested.
    case any
    /// The best one by the client's `Accept`.
    case auto
    case given(OutputFormat)
  }

  /// In pixels, multiplied by `dpr`.
  var width: Int?
  /// In pixels, multiplied by `dpr`.
  var height: Int?
  var fit = Variant.Fit.contain
  var position = Variant.Position.center
  var enlarge = false
  var format = Format.any
  var quality: Int?
  var background: Variant.Color?
  var isAnimated = false

  /// The defaults.
  init() {}

  static let names = [
    "width", "height", "fit", "position", "enlarge", "format", "quality", "background", "dpr",
    "animated",
  ]

  /// Reads its parameters from a query; nil if there are none. Mistakes are added to the query.
  ///
  /// - Parameters:
  ///   - formats: the formats that can be written.
  ///   - longest: the maximum of a side, in pixels.
  init?(_ query: inout Query, formats: Set<OutputFormat>, longest: Int) {
    let given = Self.names.filter { query.has($0) }
    guard !given.isEmpty else { return nil }
    guard !formats.isEmpty else {
      for name in given where query.value(name) != nil {
        query.addMistake(name, "The service cannot make variants.")
      }
      return nil
    }
    let density = query.number("dpr", in: 1...4) ?? 1
    width = query.side("width", times: density, longest: longest)
    height = query.side("height", times: density, longest: longest)
    fit = query.choice("fit", of: Variant.Fit.self) ?? .contain
    position = query.position("position") ?? .center
    enlarge = query.bool("enlarge")
    format = query.format(among: formats)
    quality = query.int("quality", in: 1...100)
    background = query.color("background")
    isAnimated = query.bool("animated")
    if case .given(let format) = format, isAnimated, format != .webp {
      query.addMistake("animated", "Animations can be written as webp only.")
    }
  }

  /// The same variant as a member of a job; nil if its format or size depends on the image, or it may exceed the
  /// limits.
  func request(within limits: APIConfiguration.Limits) -> VariantRequest? {
    let mayGrow = fit == .cover || fit == .fill || enlarge
    if mayGrow {
      guard let width, let height, width <= limits.maxPixels / max(1, height) else { return nil }
    }
    var request = VariantRequest(name: "v0")
    switch format {
    case .any: break
    case .auto: return nil
    case .given(let format): request.format = format
    }
    (request.width, request.height, request.fit) = (width, height, fit)
    (request.position, request.enlarge) = (position, enlarge)
    (request.quality, request.background) = (quality, background)
    request.isAnimated = isAnimated
    return request
  }

  /// The variant for a given image.
  func variant(
    of image: ImageDescription, _ accept: Accept, formats: Set<OutputFormat>
  ) -> Variant {
    let isTransparent = image.hasAlpha && background == nil
    let choice = FormatChoice(formats, for: image, isTransparent: isTransparent)
    let shows = isAnimated && image.frames > 1 && formats.contains(.webp)
    var variant =
      switch format {
      case .any where shows, .auto where shows: Variant(format: .webp)
      case .any: Variant(format: choice.plain)
      case .auto: Variant(format: choice.best(accept))
      case .given(let format): Variant(format: format)
      }
    (variant.width, variant.height, variant.fit) = (width, height, fit)
    (variant.position, variant.enlarge) = (position, enlarge)
    (variant.quality, variant.background) = (quality, background)
    variant.isAnimated = isAnimated
    return variant
  }
}

extension Query {
  fileprivate mutating func side(_ name: String, times density: Double, longest: Int) -> Int? {
    guard let side = int(name, in: 1...longest) else { return nil }
    let pixels = (Double(side) * density).rounded()
    guard pixels <= Double(longest) else {
      addMistake(name, "Multiplied by dpr it is more than \(longest) pixels.")
      return nil
    }
    return Int(pixels)
  }

  /// Reads one of a fixed set of words.
  fileprivate mutating func choice<Word: RawRepresentable<String> & CaseIterable>(
    _ name: String, of words: Word.Type
  ) -> Word? {
    guard let text = value(name) else { return nil }
    guard let word = Word(rawValue: text) else {
      addMistake(name, "Must be one of \(Word.allCases.map(\.rawValue).joined(separator: ", ")).")
      return nil
    }
    return word
  }

  fileprivate mutating func format(among formats: Set<OutputFormat>) -> VariantQuery.Format {
    guard let text = value("format") else { return .any }
    if text == "auto" { return .auto }
    guard let format = OutputFormat(rawValue: text), formats.contains(format) else {
      let known = OutputFormat.allCases.filter(formats.contains).map(\.rawValue)
      addMistake("format", "Must be one of \((known + ["auto"]).joined(separator: ", ")).")
      return .any
    }
    return .given(format)
  }

  fileprivate mutating func position(_ name: String) -> Variant.Position? {
    guard let text = value(name) else { return nil }
    guard let position = Variant.Position(text) else {
      addMistake(name, Variant.Position.words)
      return nil
    }
    return position
  }

  fileprivate mutating func color(_ name: String) -> Variant.Color? {
    guard let text = value(name) else { return nil }
    guard let color = Variant.Color(text) else {
      addMistake(name, Variant.Color.words)
      return nil
    }
    return color
  }
}

extension Variant.Color {
  static let words = "Must be six hexadecimal digits such as ff8800."

  /// Parses six hexadecimal digits with an optional `#` before them.
  init?(_ text: String) {
    let digits = text.hasPrefix("#") ? text.dropFirst() : text[...]
    let isPlain = digits.utf8.count == 6 && digits.allSatisfy { $0.isASCII && $0.isHexDigit }
    guard isPlain, let value = UInt32(digits, radix: 16) else { return nil }
    self.init(red: UInt8(value >> 16), green: UInt8(value >> 8 & 255), blue: UInt8(value & 255))
  }
}

extension Variant.Position {
  static let words =
    "Must be center, top, bottom, left, right, a corner such as top-left, or X,Y in percent."

  /// Parses a word, two words, or two percentages.
  init?(_ text: String) {
    let percents = text.split(separator: ",", omittingEmptySubsequences: false).map { part in
      part.utf8.allSatisfy { 48...57 ~= $0 } ? Int(part) : nil
    }
    if percents.count == 2 {
      guard let x = percents[0], let y = percents[1], max(x, y) <= 100 else { return nil }
      self.init(x: x, y: y)
      return
    }
    switch text {
    case "center": self = .center
    case "top": self.init(x: 50, y: 0)
    case "bottom": self.init(x: 50, y: 100)
    case "left": self.init(x: 0, y: 50)
    case "right": self.init(x: 100, y: 50)
    case "top-left": self.init(x: 0, y: 0)
    case "top-right": self.init(x: 100, y: 0)
    case "bottom-left": self.init(x: 0, y: 100)
    case "bottom-right": self.init(x: 100, y: 100)
    default: return nil
    }
  }
}
