/// How images in a folder are called: a relative path with places for what a URL and an image's bytes say.
///
/// What comes from a URL is cut to letters, digits, `-` and `_` (a host's dots too), so that no URL can name a file
/// outside the folder, a hidden one or an option of somebody's command.
public struct NameTemplate: Sendable, Equatable {
  /// What can stand between braces.
  enum Place: String, CaseIterable {
    /// The URL's host, without its port.
    case host
    /// The folders of its path.
    case path
    /// The last part of its path, without its ending.
    case name
    /// What the bytes are: `jpg`, `png`, `webp`, `gif`, `avif`, `jxl`, `heic`.
    case ext
    /// The URL's place in all that was asked for, from 1 on.
    case index
  }

  /// Why a text is no template; for people.
  public struct Mistake: Error, Equatable {
    public let text: String
  }

  private enum Part: Equatable {
    case text(String)
    case place(Place)
  }

  /// As names are where nobody says otherwise.
  static let usual = NameTemplate(parts: [.place(.name), .text("."), .place(.ext)])

  private let parts: [Part]

  private init(parts: [Part]) { self.parts = parts }

  /// - Throws: where the text leaves the folder, names something unknown, or leaves the ending to the URL.
  public init(_ text: String) throws(Mistake) {
    guard 1...512 ~= text.utf8.count, !text.utf8.contains(where: { $0 < 0x20 || $0 == 0x7F }) else {
      throw Mistake(text: "It is a relative path of 1 to 512 bytes.")
    }
    let names = text.split(separator: "/", omittingEmptySubsequences: false)
    // A URL may have no folders: what is left of a part is one then.
    let left = names.map { $0.replacing("{\(Place.path.rawValue)}", with: "") }
    guard !names.contains(""), !left.contains("."), !left.contains("..") else {
      throw Mistake(
        text: "It stays in the folder: no / at its ends, no empty part, no . or .. part.")
    }
    parts = try Self.parts(of: text)
    // A URL that may end in anything must not say as what a file is opened.
    guard (names.last ?? "").contains(#/\.(\{ext\}|[A-Za-z0-9]+)$/#) else {
      throw Mistake(text: "It ends with .{ext}, or with an ending of its own, such as .jpg.")
    }
  }

  private static func parts(of text: String) throws(Mistake) -> [Part] {
    var parts: [Part] = []
    var rest = text[...]
    while let brace = rest.firstIndex(where: { $0 == "{" || $0 == "}" }) {
      if brace > rest.startIndex { parts.append(.text(String(rest[..<brace]))) }
      let end = rest[brace...].firstIndex(of: "}")
      guard rest[brace] == "{", let end,
        let place = Place(rawValue: String(rest[rest.index(after: brace)..<end]))
      else {
        let known = Place.allCases.map { "{\($0.rawValue)}" }.joined(separator: ", ")
        throw Mistake(text: "Between braces it knows \(known).")
      }
      parts.append(.place(place))
      rest = rest[rest.index(after: end)...]
    }
    return rest.isEmpty ? parts : parts + [.text(String(rest))]
  }

  /// The format that its own ending asks for, where it can be written.
  var format: ImageOptions.Format? {
    guard case .text(let text) = parts.last, let dot = text.lastIndex(of: ".") else { return nil }
    return ImageOptions.Format(ending: text[text.index(after: dot)...])
  }

  /// The path of an image below the folder.
  /// - Parameters:
  ///   - url: as asked for.
  ///   - index: its place in all that was asked for.
  ///   - ending: for `{ext}`, without its dot.
  func name(of url: String, index: Int, ending: String) -> String {
    let places = URLPlaces(ImageOptions.url(url))
    let text = parts.map { part in
      switch part {
      case .text(let text): text
      case .place(.host): places.host
      case .place(.path): places.path
      case .place(.name): places.name
      case .place(.ext): ending
      case .place(.index): "\(index)"
      }
    }.joined()
    // An empty {path} leaves an empty part; what follows a slash may begin with a dot or a dash of the template's own.
    return text.split(separator: "/").joined(separator: "/")
  }

  /// All paths that an image of the URL may have, by what its bytes may turn out to be.
  func names(of url: String, index: Int, endings: [String]) -> [String] {
    guard parts.contains(.place(.ext)) else { return [name(of: url, index: index, ending: "")] }
    return endings.map { name(of: url, index: index, ending: $0) }
  }
}

/// The parts of a URL that names are made of, as plain as file names have to be.
private struct URLPlaces {
  let host: String
  let path: String
  let name: String

  /// No URL makes a path that is longer than systems take: that would end the whole run.
  private static let maxFolders = 16

  init(_ url: String) {
    let rest = url.firstRange(of: "://").map { url[$0.upperBound...] } ?? url[...]
    let authority = rest.prefix { !"/?#".contains($0) }
    let host = authority[
      (authority.lastIndex(of: "@").map(authority.index(after:)) ?? authority.startIndex)...]
    let bare = host.hasPrefix("[") ? host.prefix { $0 != "]" } : host.prefix { $0 != ":" }
    // The colons of an IPv6 address.
    let plain = bare.lowercased().map { $0 == ":" ? "-" : $0 }.filter { $0 != "[" }
    let dotted = Self.plain(String(plain)[...], withDots: true)
    self.host = dotted.isEmpty ? "unknown" : dotted
    let path = rest[authority.endIndex...].prefix { $0 != "?" && $0 != "#" }
    let folders = path.split(separator: "/", omittingEmptySubsequences: false)
    let last = folders.last ?? ""
    self.path = folders.dropLast().map { Self.plain($0) }.filter { !$0.isEmpty }
      .prefix(Self.maxFolders).joined(separator: "/")
    let stem = Self.plain(last[..<(last.lastIndex(of: ".") ?? last.endIndex)])
    name = stem.isEmpty ? "image" : stem
  }

  /// As the service names images: what is escaped or means something to a shell, a path or a terminal is left out.
  private static func plain(_ text: Substring, withDots: Bool = false) -> String {
    var plain: [UInt8] = []
    var rest = text.utf8[...]
    while let byte = rest.popFirst(), plain.count < 64 {
      switch byte {
      case UInt8(ascii: "%"): rest = rest.dropFirst(2)
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"):
        plain.append(byte)
      // Neither hides a file nor makes an option of it.
      case UInt8(ascii: "-") where !plain.isEmpty: plain.append(byte)
      case UInt8(ascii: ".") where withDots && !plain.isEmpty: plain.append(byte)
      default: break
      }
    }
    return String(decoding: plain, as: UTF8.self)
  }
}
