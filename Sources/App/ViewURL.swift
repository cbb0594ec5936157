internal import API
package import Foundation

/// A URL of `GET /image` that the command `imagefetch sign` signs.
package struct ViewURL: Sendable {
  /// Why the URL can't be signed.
  package enum Refusal: Error, Sendable, Equatable {
    /// The text is neither a URL of `GET /image` nor the URL of an image.
    case notAURL
    /// `server` is not an http or https URL, or the text already contains a server.
    case unusableServer
    /// The service would refuse the URL: `GET /image` has no such query parameter.
    case unknownMember(String)
    /// `view.keys` is empty.
    case noKey
  }

  /// The part before the path; empty for a path alone.
  private let base: String
  private let query: String
  /// The path of the route, as the service receives it.
  private static let path = "/image"

  /// Parses a URL of `GET /image` (`https://img.example/image?url=…`, or its path and query), or creates one for the URL of
  /// an image.
  ///
  /// - Parameter server: the service's URL, such as `https://img.example`. Only allowed with the URL of an image.
  /// - Throws: `notAURL`, `unusableServer`, `unknownMember`.
  package init(_ text: String, server: String? = nil) throws(Refusal) {
    guard !text.utf8.contains(where: { $0 <= 0x20 || $0 >= 0x7F }) else { throw .notAURL }
    let address = text.prefixMatch(of: #/https?://[^/?#]+/#).map { String($0.output) } ?? ""
    let rest = text.dropFirst(address.count).prefix { $0 != "#" }
    let parts = rest.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
    let members = parts.count > 1 ? parts[1].split(separator: "&") : []
    if let place = parts.first, place.hasSuffix(Self.path),
      members.contains(where: { $0.hasPrefix("url=") })
    {
      guard server == nil else { throw .unusableServer }
      // A proxy may serve the service below another path, which it removes before it forwards the request.
      base = address + place.dropLast(Self.path.count)
      let kept = members.filter { !$0.hasPrefix("expires=") && !$0.hasPrefix("signature=") }
      for member in kept {
        let name = String(member.prefix { $0 != "=" })
        guard Routes.viewParameters.contains(name.removingPercentEncoding ?? name) else {
          throw .unknownMember(name)
        }
      }
      query = kept.joined(separator: "&")
    } else {
      guard !address.isEmpty else { throw .notAURL }
      guard server?.wholeMatch(of: #/https?://[^/?#\s]+(/[^?#\s]*)?/#) != nil || server == nil
      else { throw .unusableServer }
      base = server.map { $0.hasSuffix("/") ? String($0.dropLast()) : $0 } ?? ""
      query = "url=" + Self.encoded(text)
    }
  }

  /// Returns the URL with `expires` and `signature`.
  ///
  /// - Parameter expires: when the URL stops being valid, rounded down to whole seconds.
  /// - Throws: `noKey`.
  package func signed(
    by configuration: Configuration, expires: Date
  ) throws(Refusal) -> String {
    let signature = ViewSignature(keys: configuration.view.keys)
    let seconds = Int64(expires.timeIntervalSince1970)
    guard let query = signature.signed(path: Self.path, query: query, expires: seconds) else {
      throw .noKey
    }
    return "\(base)\(Self.path)?\(query)"
  }

  /// Percent-encodes all characters except RFC 3986's unreserved ones, for use as a query parameter's value.
  private static func encoded(_ text: String) -> String {
    let plain = CharacterSet(
      charactersIn: "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
    return text.addingPercentEncoding(withAllowedCharacters: plain) ?? text
  }
}
