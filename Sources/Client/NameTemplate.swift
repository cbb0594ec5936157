/// A template for the paths of images in a folder. It has placeholders for parts of the URL and for the
/// image's format.
///
/// Only letters and digits of all scripts, `.`, `-` and `_` of a URL are used
/// (``FileName/part(_:atMost:)``). No URL can therefore name a file outside the folder, a hidden file
/// or a command's option.
package struct NameTemplate: Sendable, Equatable {
  /// The placeholders, written in braces.
  enum Placeholder: String, CaseIterable {
    /// The URL's host, without its port.
    case host
    /// The folders of the URL's path.
    case path
    /// The last part of the URL's path, without its extension.
    case name
    /// The file extension of the image's format, such as `jpg`: one of ``FileName/endings``.
    case ext
    /// The number of the URL in the run, from 1 on.
    case index
    /// A digest of the URL and the variant, which makes the name unique.
    case digest
  }

  /// Why a text is not a valid template; shown to the user.
  package struct Mistake: Error, Equatable {
    package let text: String
  }

  private enum Part: Equatable {
    case text(String)
    case place(Placeholder)
  }

  /// The default template.
  static let standard = NameTemplate(parts: [.place(.name), .text("."), .place(.ext)])

  private let parts: [Part]

  private init(parts: [Part]) { self.parts = parts }

  /// - Throws: `Mistake` if the path leaves the folder, a placeholder is unknown, or the extension
  ///   would come from the URL.
  package init(_ text: String) throws(Mistake) {
    guard 1...512 ~= text.utf8.count, !text.utf8.contains(where: { $0 < 0x20 || $0 == 0x7F }) else {
      throw Mistake(text: "The name must be a relative path of 1 to 512 bytes.")
    }
    let names = text.split(separator: "/", omittingEmptySubsequences: false)
    // `{path}` is empty for a URL without folders. The rest of the part then becomes a folder name.
    let left = names.map { $0.replacing("{\(Placeholder.path.rawValue)}", with: "") }
    guard !names.contains(""), !left.contains("."), !left.contains("..") else {
      throw Mistake(
        text: "The name must stay in the folder: no / at its ends, no empty part, no . or .. part.")
    }
    parts = try Self.parts(of: text)
    // The URL must not determine the extension, since it decides which program opens the file.
    guard (names.last ?? "").contains(#/\.(\{ext\}|[A-Za-z0-9]+)$/#) else {
      throw Mistake(text: "The name must end with .{ext} or a fixed extension such as .jpg.")
    }
  }

  private static func parts(of text: String) throws(Mistake) -> [Part] {
    var parts: [Part] = []
    var rest = text[...]
    while let brace = rest.firstIndex(where: { $0 == "{" || $0 == "}" }) {
      if brace > rest.startIndex { parts.append(.text(String(rest[..<brace]))) }
      let end = rest[brace...].firstIndex(of: "}")
      guard rest[brace] == "{", let end,
        let place = Placeholder(rawValue: String(rest[rest.index(after: brace)..<end]))
      else {
        let known = Placeholder.allCases.map { "{\($0.rawValue)}" }.joined(separator: ", ")
        throw Mistake(text: "Unknown placeholder. Use one of \(known).")
      }
      parts.append(.place(place))
      rest = rest[rest.index(after: end)...]
    }
    return rest.isEmpty ? parts : parts + [.text(String(rest))]
  }

  /// The format that the template's fixed extension implies. Nil if there is none or images cannot be
  /// saved in it.
  var format: ImageOptions.Format? {
    guard case .text(let text) = parts.last, let dot = text.lastIndex(of: ".") else { return nil }
    return ImageOptions.Format(ending: text[text.index(after: dot)...])
  }

  /// Returns the template with `{digest}` before the extension, unless it already contains `{digest}`.
  /// Each name then belongs to one URL.
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

  /// Returns the path of an image relative to the folder.
  /// - Parameters:
  ///   - url: The URL as given by the user.
  ///   - index: The URL's number in the run.
  ///   - ending: The value of `{ext}`, without its dot.
  func name(of url: String, index: Int, digest: String, ending: String) -> String {
    var places = URLParts(ImageOptions.url(url))
    while true {
      let names = path(places, index, digest, ending)
      let excess = (names.last?.utf8.count ?? 0) + Self.numberBytes - URLParts.maxPartBytes
      let left = places.name.utf8.count
      guard excess > 0, left > 1 else {
        return
          (names.dropLast().map { FileName.cut($0, to: URLParts.maxPartBytes) } + names.suffix(1))
          .joined(separator: "/")
      }
      // The template may contain `{name}` several times.
      let count = max(1, parts.count { $0 == .place(.name) })
      places.name = FileName.cut(places.name, to: max(1, left - (excess + count - 1) / count))
      // A character may need more bytes than are left.
      if places.name.isEmpty { places.name = "_" }
    }
  }

  /// The bytes reserved in a file name for a number such as `-2`.
  private static let numberBytes = 11

  private func path(
    _ places: URLParts, _ index: Int, _ digest: String, _ ending: String
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
    // An empty `{path}` leaves an empty part. A part may begin with a dot or dash that the template
    // contains.
    return text.utf8.split(separator: UInt8(ascii: "/")).map { String(Substring($0)) }
  }

  /// Returns all paths that an image of the URL may have, one per possible format.
  func names(of url: String, index: Int, digest: String, endings: [String]) -> [String] {
    let endings = parts.contains(.place(.ext)) ? endings : [""]
    return endings.map { name(of: url, index: index, digest: digest, ending: $0) }
  }
}

/// The values of the placeholders that come from a URL.
private struct URLParts {
  let host: String
  let path: String
  var name: String

  /// The longest part of a path in bytes on common file systems.
  static let maxPartBytes = 255
  /// The longest host in a name, in bytes.
  private static let mostHostBytes = 100
  /// The most bytes of all folders together. A longer path would exceed the system's limit and end the
  /// run.
  private static let mostFolderBytes = 1_024

  init(_ url: String) {
    // Compare bytes: a slash followed by a combining mark is one Character.
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
    self.path = folders.dropLast().map { FileName.part($0, atMost: Self.maxPartBytes) }
      .filter { !$0.isEmpty }
      .prefix {
        bytes += $0.utf8.count + 1
        return bytes <= Self.mostFolderBytes
      }.joined(separator: "/")
    let last = folders.last ?? "".utf8[...]
    let stem = last.lastIndex(of: UInt8(ascii: ".")).map { last[..<$0] } ?? last
    let name = FileName.part(stem, atMost: Self.maxPartBytes)
    self.name = name.isEmpty ? "image" : name
  }
}
