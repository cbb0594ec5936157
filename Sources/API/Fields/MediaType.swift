internal import HTTP
internal import Jobs

/// A media type (RFC 9110 section 8.3.1).
struct MediaType: Equatable, Sendable {
  /// `type/subtype`, lower case.
  let essence: String
  private let parameters: [(name: String, value: String)]

  /// Parses a `Content-Type`; nil if it is missing or malformed.
  init?(_ text: String?) {
    guard let text, text.utf8.count <= 512 else { return nil }
    var rest = text.utf8[...]
    let type = Self.token(&rest)
    guard rest.popFirst() == UInt8(ascii: "/") else { return nil }
    let subtype = Self.token(&rest)
    guard !type.isEmpty, !subtype.isEmpty, type.utf8.count + subtype.utf8.count <= 126,
      let parameters = Self.parameters(&rest)
    else { return nil }
    essence = "\(type)/\(subtype)".lowercased()
    self.parameters = parameters
  }

  static func == (a: MediaType, b: MediaType) -> Bool {
    a.essence == b.essence && a.parameters.elementsEqual(b.parameters, by: ==)
  }

  /// Returns the value of the parameter, or nil.
  func parameter(_ name: String) -> String? {
    parameters.first { $0.name == name }?.value
  }

  /// Whether the body can be an image.
  var isImage: Bool { essence.hasPrefix("image/") || essence == "application/octet-stream" }

  typealias Bytes = Substring.UTF8View

  /// Parses `;name=value` and `;name="value"`, with white space around the semicolon; nil if anything else follows.
  static func parameters(_ rest: inout Bytes) -> [(name: String, value: String)]? {
    var found: [(name: String, value: String)] = []
    skipSpace(&rest)
    while rest.popFirst() == UInt8(ascii: ";") {
      skipSpace(&rest)
      if rest.isEmpty || rest.first == UInt8(ascii: ";") { continue }
      let name = token(&rest).lowercased()
      guard !name.isEmpty, rest.popFirst() == UInt8(ascii: "=") else { return nil }
      guard let value = rest.first == UInt8(ascii: "\"") ? quoted(&rest) : token(&rest) else {
        return nil
      }
      guard !found.contains(where: { $0.name == name }) else { return nil }
      found.append((name, value))
      skipSpace(&rest)
    }
    return rest.isEmpty ? found : nil
  }

  static func token(_ rest: inout Bytes) -> String {
    let token = rest.prefix { $0.isTokenCharacter }
    rest = rest[token.endIndex...]
    return String(Substring(token))
  }

  /// Parses the quoted string at the start of the text; nil if its closing quote is missing.
  static func quoted(_ rest: inout Bytes) -> String? {
    rest.removeFirst()
    var value: [UInt8] = []
    while let byte = rest.popFirst() {
      if byte == UInt8(ascii: "\"") { return String(validating: value, as: UTF8.self) }
      guard byte == UInt8(ascii: "\\") else { value.append(byte); continue }
      guard let escaped = rest.popFirst() else { return nil }
      value.append(escaped)
    }
    return nil
  }

  static func skipSpace(_ rest: inout Bytes) {
    while rest.first == 0x20 || rest.first == 0x09 { rest.removeFirst() }
  }
}

/// The `Accept` field of a request: the media types that the client accepts, with weights (RFC 9110 section 12.5.1).
struct Accept: Sendable {
  private struct Range {
    let type: Substring
    let subtype: Substring
    let weight: Double
  }
  private let ranges: [Range]

  /// - Parameter field: nil: all types are equally acceptable. Malformed elements are ignored.
  init(_ field: String?) {
    ranges = (field ?? "").split(separator: ",").compactMap { Self.range($0) }
  }

  /// Whether the field is missing or has no valid element.
  var isEmpty: Bool { ranges.isEmpty }

  /// The weight of the type, 0 to 1. The most specific matching range decides. Parameters other than `q` are ignored,
  /// because no image type has any.
  func weight(of mediaType: String) -> Double {
    if isEmpty { return 1 }
    let parts = mediaType.split(separator: "/")
    guard parts.count == 2 else { return 0 }
    return ranges.filter { $0.subtype == parts[1] && $0.type == parts[0] }.map(\.weight).max()
      ?? ranges.filter { $0.subtype == "*" && $0.type == parts[0] }.map(\.weight).max()
      ?? ranges.filter { $0.subtype == "*" && $0.type == "*" }.map(\.weight).max() ?? 0
  }

  /// Whether the field lists the type itself with a weight above 0. A range such as `image/*` does not count.
  func names(_ mediaType: String) -> Bool {
    ranges.contains { $0.weight > 0 && "\($0.type)/\($0.subtype)" == mediaType }
  }

  private static func range(_ element: Substring) -> Range? {
    let text = element.drop { $0 == " " || $0 == "\t" }
    guard let mediaType = MediaType(String(text)) else { return nil }
    let parts = mediaType.essence.split(separator: "/")
    guard parts.count == 2, parts[0] != "*" || parts[1] == "*",
      let weight = mediaType.parameter("q").map(Self.weight) ?? 1
    else { return nil }
    return Range(type: parts[0], subtype: parts[1], weight: weight)
  }

  /// RFC 9110 section 12.4.2: at most three digits after the point.
  private static func weight(_ text: String) -> Double? {
    let isPlain = text.utf8.allSatisfy { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 || $0 == 0x2E }
    guard isPlain, 1...5 ~= text.utf8.count, let weight = Double(text), weight <= 1 else {
      return nil
    }
    return weight
  }
}

/// Chooses the format of a variant if the client names none.
struct FormatChoice {
  /// The formats that this build can write; at least one.
  let formats: Set<OutputFormat>
  /// The format of the image, if it can be written.
  let own: OutputFormat?
  /// Whether the variant may have transparent pixels, which JPEG can't store.
  let isTransparent: Bool
  /// See ``ImageFormat/isLossy``.
  private let isLossy: Bool

  init(_ formats: Set<OutputFormat>, for image: ImageDescription, isTransparent: Bool) {
    self.formats = formats
    own = OutputFormat(rawValue: image.format.rawValue).flatMap { formats.contains($0) ? $0 : nil }
    self.isTransparent = isTransparent
    isLossy = image.format.isLossy
  }

  /// The format if the client sends no `Accept`: the image's own, else PNG or JPEG.
  var plain: OutputFormat { own ?? order.first { $0 == .png || $0 == .jpeg } ?? order[0] }

  /// Returns the format with the highest weight in `Accept`. Among equal weights WebP wins, because it is small and
  /// quick to write. AVIF is smaller, but takes many times as long.
  ///
  /// WebP and AVIF are sent only to clients that name them, because clients without support for them also send
  /// `image/*`. A client that accepts none of the formats gets the plain one, which RFC 9110 section 12.5.1 allows.
  ///
  /// Old versions of Safari send `image/png,image/*;q=0.8`, also for photos. So a photo is sent as JPEG in place of
  /// PNG, unless `Accept` names JPEG.
  func best(_ accept: Accept) -> OutputFormat {
    if accept.isEmpty { return plain }
    let candidates = order.filter { format in
      format == own || format == .png || format == .jpeg || accept.names(format.contentType)
    }
    let welcome = candidates.map { ($0, accept.weight(of: $0.contentType)) }.filter { $0.1 > 0 }
    let kept = welcome.filter { $0.0 != .jpeg || !isTransparent }
    let choices = kept.isEmpty ? welcome : kept
    let best = choices.map(\.1).max()
    let chosen = choices.first { $0.1 == best }?.0 ?? plain
    let hasJPEG = choices.contains { $0.0 == .jpeg } && !accept.names(OutputFormat.jpeg.contentType)
    return chosen == .png && isLossy && !isTransparent && hasJPEG ? .jpeg : chosen
  }

  /// The formats in order of preference.
  private var order: [OutputFormat] {
    var order: [OutputFormat] = [.webp, .avif]
    if let own, !order.contains(own) { order.append(own) }
    order += isTransparent ? [.png, .jpeg] : [.jpeg, .png]
    return order.filter(formats.contains)
  }
}
