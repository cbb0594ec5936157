/// How images in a folder are called: a relative path with places for what a URL and an image's bytes say.
///
/// A name keeps letters and digits of all scripts, `.`, `-` and `_` of the URL (``FileName/part(_:atMost:)``), so that no URL can
/// name a file outside the folder, a hidden one or an option of a command.
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
    /// A digest of the URL and of the variant: no two of them share it.
    case digest
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

  /// The same with `{digest}` before the ending, unless it has that place: a name then belongs to one URL alone.
  var withDigest: NameTemplate {
    guard !parts.contains(.place(.digest)) else { return self }
    var parts = parts
    let ending = parts.last == .place(.ext) ? [parts.removeLast()] : []
    guard case .text(let text)? = parts.popLast(), let dot = text.lastIndex(of: ".") else {
      return self  // each template ends with a dot and an ending
    }
    parts += [.text(text[..<dot] + "-"), .place(.digest), .text(String(text[dot...]))]
    return NameTemplate(parts: parts + ending)
  }

  /// The path of an image below the folder.
  /// - Parameters:
  ///   - url: as asked for.
  ///   - index: its place in all that was asked for.
  ///   - ending: for `{ext}`, without its dot.
  func name(of url: String, index: Int, digest: String, ending: String) -> String {
    var places = URLPlaces(ImageOptions.url(url))
    while true {
      let names = path(places, index, digest, ending)
      let excess = (names.last?.utf8.count ?? 0) + Self.numberBytes - URLPlaces.mostBytes
      let left = places.name.utf8.count
      guard excess > 0, left > 1 else {
        return
          (names.dropLast().map { FileName.cut($0, to: URLPlaces.mostBytes) } + names.suffix(1))
          .joined(separator: "/")
      }
      // The name may have several places in the file's name.
      let count = max(1, parts.count { $0 == .place(.name) })
      places.name = FileName.cut(places.name, to: max(1, left - (excess + count - 1) / count))
      // A letter may have more bytes than are left.
      if places.name.isEmpty { places.name = "_" }
    }
  }

  /// Left free in a file's name for `-2` and the like.
  private static let numberBytes = 11

  private func path(
    _ places: URLPlaces, _ index: Int, _ digest: String, _ ending: String
  ) -> [String] {
    let text = parts.map { part in
      switch part {
      case .text(let text): text
      case .place(.host): places.host
      case .place(.path): places.path
      case .place(.name): places.name
      case .place(.ext): ending
      case .place(.index): "\(index)"
      case .place(.digest): digest
      }
    }.joined()
    // An empty {path} leaves an empty part; what follows a slash may begin with a dot or a dash of the template's own.
    return text.utf8.split(separator: UInt8(ascii: "/")).map { String(Substring($0)) }
  }

  /// All paths that an image of the URL may have, by what its bytes may turn out to be.
  func names(of url: String, index: Int, digest: String, endings: [String]) -> [String] {
    let endings = parts.contains(.place(.ext)) ? endings : [""]
    return endings.map { name(of: url, index: index, digest: digest, ending: $0) }
  }
}

/// The parts of a URL that names are made of.
private struct URLPlaces {
  let host: String
  let path: String
  var name: String

  /// Bytes of one part of a path, as common file systems take them.
  static let mostBytes = 255
  /// Bytes of a host in a name.
  private static let mostHostBytes = 100
  /// Bytes of all folders together: no URL makes a path that is longer than systems take, which would end the whole run.
  private static let mostFolderBytes = 1_024

  init(_ url: String) {
    // By bytes: a slash and a mark that combines with it are one Character.
    let start = url.utf8.firstRange(of: "://".utf8)?.upperBound ?? url.startIndex
    let rest = url.utf8[start...]
    let authority = rest.prefix { !"/?#".utf8.contains($0) }
    let user = authority.lastIndex(of: UInt8(ascii: "@"))
    let host = user.map { authority[$0...].dropFirst() } ?? authority
    let bare =
      host.first == UInt8(ascii: "[")
      ? host.dropFirst().prefix { $0 != UInt8(ascii: "]") }
      : host.prefix { $0 != UInt8(ascii: ":") }
    let lowercase = String(Substring(bare)).lowercased()
    let plain = FileName.part(lowercase.utf8[...], atMost: Self.mostHostBytes)
    self.host = plain.isEmpty ? "unknown" : plain
    let path = rest[authority.endIndex...].prefix {
      $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#")
    }
    let folders = path.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
    var bytes = 0
    self.path = folders.dropLast().map { FileName.part($0, atMost: Self.mostBytes) }
      .filter { !$0.isEmpty }
      .prefix {
        bytes += $0.utf8.count + 1
        return bytes <= Self.mostFolderBytes
      }.joined(separator: "/")
    let last = folders.last ?? "".utf8[...]
    let stem = last.lastIndex(of: UInt8(ascii: ".")).map { last[..<$0] } ?? last
    let name = FileName.part(stem, atMost: Self.mostBytes)
    self.name = name.isEmpty ? "image" : name
  }
}
