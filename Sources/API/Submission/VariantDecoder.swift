internal import Jobs

/// Decodes `variants`: the variants that are made before the job succeeds.
extension SubmissionDecoder {
  mutating func variants(_ value: JSONValue, at location: Location) -> [VariantRequest] {
    guard case .array(let elements) = value, elements.count <= VariantRequest.most else {
      addMistake(location, "Must be an array of at most \(VariantRequest.most) variants.")
      return []
    }
    guard elements.isEmpty || !formats.isEmpty else {
      addMistake(location, "The service cannot make variants.")
      return []
    }
    var variants: [VariantRequest] = []
    for (index, element) in elements.enumerated() {
      let location = location.child("\(index)")
      guard let variant = variant(element, named: "v\(index)", at: location) else { continue }
      if variants.contains(where: { $0.name == variant.name }) {
        addMistake(location.child("name"), "Another variant has this name.")
      } else {
        variants.append(variant)
      }
    }
    return variants
  }

  private mutating func variant(
    _ value: JSONValue, named name: String, at location: Location
  ) -> VariantRequest? {
    guard case .object(let members) = value else {
      addMistake(location, "A variant must be an object, not \(value.kind).")
      return nil
    }
    var decoder = VariantDecoder(named: name, formats, longest: limits.maxDimension)
    for member in members {
      let wrong: String?
      if let option = VariantOption(rawValue: member.name) {
        wrong = decoder.set(option, to: member.value)
      } else {
        let names = VariantOption.allCases.map(\.rawValue)
        wrong = "A variant has no such member.\(mistakes.hint(for: member.name, among: names))"
      }
      if let wrong { addMistake(location.child(member.name), wrong) }
    }
    let conflicts = decoder.finish()
    for (option, detail) in conflicts { addMistake(location.child(option.rawValue), detail) }
    let request = decoder.request
    if conflicts.isEmpty, request.fit == .fill || request.fit == .cover,
      let width = request.width, let height = request.height,
      width > limits.maxPixels / max(1, height)
    {
      addMistake(location, "The variant would have more than \(limits.maxPixels) pixels.")
    }
    return request
  }
}

/// An option of a variant: a member of an element of `variants`, and a query parameter of an image. Its raw value is its
/// name.
enum VariantOption: String, CaseIterable {
  case name, width, height, fit, position, enlarge, format, quality, background, dpr, animated

  /// The options in queries, where a variant has no name.
  static let queried = allCases.filter { $0 != .name }

  /// Converts the text of a query parameter. A text of another type becomes a string, which ``VariantDecoder`` refuses.
  func value(in text: String) -> JSONValue {
    switch self {
    case .width, .height, .quality, .dpr: JSONValue(numberIn: text) ?? .string(text)
    case .enlarge, .animated:
      ["true", "false"].contains(text) ? .bool(text == "true") : .string(text)
    case .name, .fit, .position, .format, .background: .string(text)
    }
  }
}

/// Decodes the options of one variant.
struct VariantDecoder {
  private(set) var request: VariantRequest
  /// Whether the format is `auto`, which only queries can have.
  private(set) var isAuto = false
  private var density = 1.0
  private let formats: Set<OutputFormat>
  private let longest: Int
  private let allowsAuto: Bool

  /// - Parameters:
  ///   - formats: the formats that can be written.
  ///   - longest: the maximum of a side, in pixels.
  init(
    named name: String, _ formats: Set<OutputFormat>, longest: Int, allowsAuto: Bool = false
  ) {
    request = VariantRequest(name: name)
    (self.formats, self.longest, self.allowsAuto) = (formats, longest, allowsAuto)
  }

  /// - Returns: the detail of the mistake, or nil.
  mutating func set(_ option: VariantOption, to value: JSONValue) -> String? {
    switch option {
    case .name:
      guard let name = value.string, Self.isName(name) else {
        return "Must have 1 to 32 of the characters a to z, 0 to 9, _ and -."
      }
      request.name = name
    case .width: return set(\.width, to: value, in: 1...longest)
    case .height: return set(\.height, to: value, in: 1...longest)
    case .fit:
      guard let fit = value.string.flatMap(Variant.Fit.init) else {
        return "Must be one of \(Variant.Fit.allCases.map(\.rawValue).joined(separator: ", "))."
      }
      request.fit = fit
    case .position:
      guard let position = value.string.flatMap(Variant.Position.init) else {
        return Variant.Position.words
      }
      request.position = position
    case .enlarge: return set(\.enlarge, to: value)
    case .format:
      isAuto = allowsAuto && value.string == "auto"
      if isAuto { return nil }
      guard let format = value.string.flatMap(OutputFormat.init), formats.contains(format) else {
        let known = OutputFormat.allCases.filter(formats.contains).map(\.rawValue)
        let words = known + (allowsAuto ? ["auto"] : [])
        return "Must be one of \(words.joined(separator: ", "))."
      }
      request.format = format
    case .quality: return set(\.quality, to: value, in: 1...100)
    case .background:
      guard let color = value.string.flatMap(Variant.Color.init) else { return Variant.Color.words }
      request.background = color
    case .animated: return set(\.isAnimated, to: value)
    case .dpr:
      guard let dpr = value.double, 1...4 ~= dpr else { return "Must be a number from 1 to 4." }
      density = dpr
    }
    return nil
  }

  /// Applies `dpr`. Call it after all options are set.
  /// - Returns: the options that contradict others, with the details.
  mutating func finish() -> [(VariantOption, String)] {
    var conflicts: [(VariantOption, String)] = []
    if request.isAnimated, let format = request.format, format != .webp {
      conflicts.append((.animated, "Animations can be written as webp only."))
    }
    func scale(_ path: WritableKeyPath<VariantRequest, Int?>, _ option: VariantOption) {
      guard let side = request[keyPath: path] else { return }
      let pixels = (Double(side) * density).rounded()
      if pixels <= Double(longest) {
        request[keyPath: path] = Int(pixels)
      } else {
        conflicts.append((option, "Multiplied by dpr it is more than \(longest) pixels."))
      }
    }
    scale(\.width, .width)
    scale(\.height, .height)
    return conflicts
  }

  private mutating func set(
    _ path: WritableKeyPath<VariantRequest, Int?>, to value: JSONValue, in range: ClosedRange<Int>
  ) -> String? {
    guard let number = value.int, range ~= number else {
      return "Must be an integer from \(range.lowerBound) to \(range.upperBound)."
    }
    request[keyPath: path] = number
    return nil
  }

  private mutating func set(
    _ path: WritableKeyPath<VariantRequest, Bool>, to value: JSONValue
  ) -> String? {
    guard case .bool(let isSet) = value else { return "Must be true or false." }
    request[keyPath: path] = isSet
    return nil
  }

  private static func isName(_ name: String) -> Bool {
    1...32 ~= name.utf8.count
      && name.utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"),
          UInt8(ascii: "_"), UInt8(ascii: "-"):
          true
        default: false
        }
      }
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

/// The query parameters that request a variant of an image.
struct VariantQuery: Sendable, Equatable {
  /// Its width and height are multiplied by `dpr`.
  var options = VariantRequest(name: "v0")
  /// Whether the format is the best one by the client's `Accept`.
  var isAuto = false

  /// The defaults.
  init() {}

  /// Reads its parameters from a query; nil if there are none. Mistakes are added to the query.
  ///
  /// - Parameters:
  ///   - formats: the formats that can be written.
  ///   - longest: the maximum of a side, in pixels.
  init?(_ query: inout Query, formats: Set<OutputFormat>, longest: Int) {
    let given = VariantOption.queried.filter { query.has($0.rawValue) }
    guard !given.isEmpty else { return nil }
    var decoder = VariantDecoder(
      named: options.name, formats, longest: longest, allowsAuto: true)
    for option in given {
      guard let text = query.value(option.rawValue) else { continue }
      let wrong =
        formats.isEmpty
        ? "The service cannot make variants." : decoder.set(option, to: option.value(in: text))
      if let wrong { query.addMistake(option.rawValue, wrong) }
    }
    for (option, detail) in decoder.finish() { query.addMistake(option.rawValue, detail) }
    (options, isAuto) = (decoder.request, decoder.isAuto)
  }

  /// The same variant as a member of a job; nil if its format or size depends on the image, or it may exceed the
  /// limits.
  func request(within limits: APIConfiguration.Limits) -> VariantRequest? {
    guard !isAuto else { return nil }
    if options.fit == .cover || options.fit == .fill || options.enlarge {
      guard let width = options.width, let height = options.height,
        width <= limits.maxPixels / max(1, height)
      else { return nil }
    }
    return options
  }

  /// The variant for a given image.
  func variant(
    of image: ImageDescription, _ accept: Accept, formats: Set<OutputFormat>
  ) -> Variant {
    let isTransparent = image.hasAlpha && options.background == nil
    var request = options
    if request.format == nil {
      let choice = FormatChoice(formats, for: image, isTransparent: isTransparent)
      let shows = request.isAnimated && image.frames > 1 && formats.contains(.webp)
      request.format = shows ? .webp : isAuto ? choice.best(accept) : choice.plain
    }
    return request.variant(of: image.format, isTransparent: isTransparent, formats: formats)
  }
}
