internal import FoundationEssentials

/// What is asked for every image of a run, in the API's words.
public struct ImageOptions: Sendable {
  /// How width and height are met.
  public enum Fit: String, Sendable, CaseIterable {
    case contain, cover, fill
    case scaleDown = "scale-down"
  }

  /// What is written.
  public enum Format: String, Sendable, CaseIterable {
    case jpeg, png, webp, avif

    /// - Parameter ending: of a file's name, without its dot; nil where it can't be written.
    init?(ending: some StringProtocol) {
      let name = ending.lowercased()
      self.init(rawValue: name == "jpg" ? "jpeg" : name)
    }
  }

  /// The Fetch standard's cache modes.
  public enum CacheMode: String, Sendable, CaseIterable {
    case standard = "default"
    case noStore = "no-store"
    case reload
    case noCache = "no-cache"
    case forceCache = "force-cache"
    case onlyIfCached = "only-if-cached"
  }

  /// Whose turn comes first.
  public enum Priority: String, Sendable, CaseIterable {
    case veryLow = "very_low"
    case low, normal, high
    case veryHigh = "very_high"
  }

  public var width: Int?
  public var height: Int?
  public var fit: Fit?
  public var format: Format?
  public var quality: Int?
  /// Six hexadecimal digits.
  public var background: String?
  public var dpr: Double?
  /// All of an animation's pictures.
  public var isAnimated = false
  public var cache: CacheMode?
  public var priority: Priority?
  public var headers: [HeaderField] = []
  public var tags: [String] = []

  /// None.
  public init() {}

  /// A field that the origin is sent.
  public struct HeaderField: Sendable, Equatable {
    let name: String
    let value: String

    /// - Parameter line: `Name: value`.
    /// - Returns: nil where it is not that.
    public init?(_ line: String) {
      guard let colon = line.utf8.firstIndex(of: UInt8(ascii: ":")) else { return nil }
      let name = line[..<colon]
      let value = line[line.index(after: colon)...].drop { $0 == " " || $0 == "\t" }
      let isName = !name.isEmpty && name.utf8.allSatisfy(Self.isOfToken)
      guard isName, value.utf8.allSatisfy({ $0 == 9 || ($0 >= 32 && $0 != 127) }) else {
        return nil
      }
      (self.name, self.value) = (String(name), String(value))
    }

    /// RFC 9110 section 5.6.2.
    private static func isOfToken(_ byte: UInt8) -> Bool {
      switch byte {
      case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
        UInt8(ascii: "A")...UInt8(ascii: "Z"):
        true
      default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
      }
    }
  }

  /// The same for an image of a format, where a file's name asks for one: what is of it already stays as it came.
  func meeting(_ format: Format?, of image: JobAnswer.Image?) -> ImageOptions {
    var options = self
    // One picture needs no animation, and stays as it came where nothing else is wished for.
    if let frames = image?.frames, frames < 2 { options.isAnimated = false }
    if options.format == nil, let format, !options.query.isEmpty || format.rawValue != image?.format
    {
      options.format = format
    }
    return options
  }

  /// The URL that somebody means who types a name alone, as a browser's address bar takes it.
  static func url(_ text: String) -> String {
    let host = text.prefix { $0 != "/" && $0 != "?" }
    if host.wholeMatch(of: #/\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?/#) != nil { return "https://" + text }
    let parts = host.split(separator: ":", omittingEmptySubsequences: false)
    guard parts.count <= 2, !parts[0].isEmpty, !parts[0].hasPrefix("."),
      parts[0].utf8.allSatisfy({ $0 > 0x20 && $0 != UInt8(ascii: "@") }),
      parts.count == 1 || UInt16(parts[1]) != nil
    else { return text }
    // A scheme's colon is not followed by a number.
    let isHost = parts[0].contains(".") || parts[0].lowercased() == "localhost" || parts.count == 2
    return isHost ? "https://" + text : text
  }

  /// The query of `/jobs/{id}/image`, with its question mark; empty where the origin's own bytes are wished for.
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
    var submission = wishes
    submission.url = Self.url(url)
    return Self.json(submission)
  }

  /// What each job of a batch is like, as JSON; nil where nothing is wished for. Header fields are in the lines: this
  /// stands in a URL, which proxies log.
  var defaults: String? {
    var wishes = wishes
    wishes.headers = nil
    let bytes = Self.json(wishes)
    return bytes.count > 2 ? String(decoding: bytes, as: UTF8.self) : nil
  }

  /// A list without a job that has the header fields alone, so that a service says at once what it thinks of them; nil
  /// where there are none.
  var headerList: [UInt8]? {
    wishes.headers.map { Self.json(HeaderList(defaults: Submission(headers: $0))) }
  }

  /// A line of a batch's NDJSON, without its end.
  func line(of url: String) -> [UInt8] {
    let url = Self.url(url)
    guard let headers = wishes.headers else { return Self.json(url) }
    return Self.json(Submission(url: url, headers: headers))
  }

  private var wishes: Submission {
    Submission(
      cache: cache?.rawValue, priority: priority?.rawValue,
      headers: headers.isEmpty
        ? nil : Dictionary(headers.map { ($0.name, $0.value) }) { _, last in last },
      tags: tags.isEmpty ? nil : tags)
  }

  private static func json(_ value: some Encodable) -> [UInt8] {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.withoutEscapingSlashes, .sortedKeys]
    // Strings and arrays of them: nothing that JSON can't say.
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
