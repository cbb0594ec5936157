internal import FoundationEssentials

/// The options for every image of a run, in the API's terms.
package struct ImageOptions: Sendable {
  /// How the image is fitted to width and height.
  package enum Fit: String, Sendable, CaseIterable {
    case contain, cover, fill
    case scaleDown = "scale-down"
  }

  /// The formats that images can be saved in.
  package enum Format: String, Sendable, CaseIterable {
    case jpeg, png, webp, avif

    /// - Parameter ending: A file extension without its dot. Nil if images cannot be saved in that
    ///   format.
    init?(ending: some StringProtocol) {
      let name = ending.lowercased()
      self.init(rawValue: name == "jpg" ? "jpeg" : name)
    }
  }

  /// The Fetch standard's cache modes.
  package enum CacheMode: String, Sendable, CaseIterable {
    case standard = "default"
    case noStore = "no-store"
    case reload
    case noCache = "no-cache"
    case forceCache = "force-cache"
    case onlyIfCached = "only-if-cached"
  }

  /// The API's job priorities.
  package enum Priority: String, Sendable, CaseIterable {
    case veryLow = "very_low"
    case low, normal, high
    case veryHigh = "very_high"
  }

  package var width: Int?
  package var height: Int?
  package var fit: Fit?
  package var format: Format?
  package var quality: Int?
  /// Six hexadecimal digits.
  package var background: String?
  package var dpr: Double?
  /// Whether all frames of an animation are kept.
  package var isAnimated = false
  package var cache: CacheMode?
  package var priority: Priority?
  package var headers: [HeaderField] = []
  package var tags: [String] = []

  /// No options.
  package init() {}

  /// A header field for the origin.
  package struct HeaderField: Sendable, Equatable {
    let name: String
    let value: String

    /// - Parameter line: `Name: value`.
    /// - Returns: Nil if the line has another form.
    package init?(_ line: String) {
      guard let colon = line.utf8.firstIndex(of: UInt8(ascii: ":")) else { return nil }
      let name = line[..<colon]
      let value = line[line.index(after: colon)...].drop { $0 == " " || $0 == "\t" }
      let isName = !name.isEmpty && name.utf8.allSatisfy(Self.isOfToken)
      guard isName, value.utf8.allSatisfy({ $0 == 9 || ($0 >= 32 && $0 != 127) }) else {
        return nil
      }
      (self.name, self.value) = (String(name), String(value))
    }

    /// Whether the byte may occur in a token (RFC 9110 section 5.6.2).
    private static func isOfToken(_ byte: UInt8) -> Bool {
      switch byte {
      case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
        UInt8(ascii: "A")...UInt8(ascii: "Z"):
        true
      default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
      }
    }
  }

  /// Returns the options for an image, with the format that a file name implies. An image that already
  /// has this format is kept unchanged.
  func meeting(_ format: Format?, of image: JobResponse.Image?) -> ImageOptions {
    var options = self
    // A still image needs no animation option. Without other options its bytes stay unchanged.
    if let frames = image?.frames, frames < 2 { options.isAnimated = false }
    if options.format == nil, let format, !options.query.isEmpty || format.rawValue != image?.format
    {
      options.format = format
    }
    return options
  }

  /// Completes a URL that was entered without a scheme, as a browser's address bar does.
  static func url(_ text: String) -> String {
    let host = text.prefix { $0 != "/" && $0 != "?" }
    if host.wholeMatch(of: #/\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?/#) != nil { return "https://" + text }
    let parts = host.split(separator: ":", omittingEmptySubsequences: false)
    guard parts.count <= 2, !parts[0].isEmpty, !parts[0].hasPrefix("."),
      parts[0].utf8.allSatisfy({ $0 > 0x20 && $0 != UInt8(ascii: "@") }),
      parts.count == 1 || UInt16(parts[1]) != nil
    else { return text }
    // A number after the colon is a port, so the text before the colon is not a scheme.
    let isHost = parts[0].contains(".") || parts[0].lowercased() == "localhost" || parts.count == 2
    return isHost ? "https://" + text : text
  }

  /// The query of `/jobs/{id}/image`, with its question mark. Empty to request the original image.
  var query: String {
    let members: [(String, String?)] = [
      ("width", width.map { "\($0)" }), ("height", height.map { "\($0)" }),
      ("fit", fit?.rawValue), ("format", format?.rawValue), ("quality", quality.map { "\($0)" }),
      ("background", background), ("dpr", dpr.map { "\($0)" }),
      ("animated", isAnimated ? "true" : nil),
    ]
    let given = members.compactMap { name, value in value.map { "\(name)=\($0)" } }
    return given.isEmpty ? "" : "?" + given.joined(separator: "&")
  }

  /// The body of `POST /jobs` for a URL.
  func submission(of url: String) -> [UInt8] {
    var submission = submissionOptions
    submission.url = Self.url(url)
    return Self.json(submission)
  }

  /// The options that all jobs of a batch share, as JSON. Nil if there are none. Header fields are sent
  /// in each line instead, because this JSON becomes part of a URL, which proxies log.
  var defaults: String? {
    var wishes = submissionOptions
    wishes.headers = nil
    let bytes = Self.json(wishes)
    return bytes.count > 2 ? String(decoding: bytes, as: UTF8.self) : nil
  }

  /// A batch submission with the header fields and no jobs. The service validates the fields before any
  /// line is sent. Nil if there are no header fields.
  var headersOnlyBatch: [UInt8]? {
    submissionOptions.headers.map { Self.json(HeaderList(defaults: Submission(headers: $0))) }
  }

  /// Returns a line of a batch's NDJSON for a URL, without its line end.
  func line(of url: String) -> [UInt8] {
    let url = Self.url(url)
    guard let headers = submissionOptions.headers else { return Self.json(url) }
    return Self.json(Submission(url: url, headers: headers))
  }

  private var submissionOptions: Submission {
    Submission(
      cache: cache?.rawValue, priority: priority?.rawValue,
      headers: headers.isEmpty
        ? nil : Dictionary(headers.map { ($0.name, $0.value) }) { _, last in last },
      tags: tags.isEmpty ? nil : tags)
  }

  private static func json(_ value: some Encodable) -> [UInt8] {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.withoutEscapingSlashes, .sortedKeys]
    // Strings and arrays of strings can always be encoded.
    return (try? encoder.encode(value)).map(Array.init) ?? []
  }

  private struct HeaderList: Encodable {
    let defaults: Submission
    var jobs: [String] = []
  }

  private struct Submission: Encodable {
    var url: String?
    var cache: String?
    var priority: String?
    var headers: [String: String]?
    var tags: [String]?
  }
}
