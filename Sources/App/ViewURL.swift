internal import API
public import Foundation

/// The URL of a view, to be signed.
public struct ViewURL: Sendable {
  /// Why it can't be signed.
  public enum Refusal: Error, Sendable, Equatable {
    /// Neither a view's URL nor an image's.
    case notAURL
    /// What is to go before an image's view is no http or https URL, or there is a view already.
    case unusableServer
    /// The view would be refused: its query may have no such member.
    case unknownMember(String)
    /// The configuration has no key.
    case noKey
  }

  /// What stands before the path; empty for a path alone.
  private let base: String
  private let query: String
  /// As the service sees it.
  private static let path = "/image"

  /// Reads a view's URL (`https://img.example/image?url=…`, or its path and query alone), or makes one of an image's.
  ///
  /// - Parameter server: what stands before the path of an image's view: `https://img.example`.
  /// - Throws: `notAURL`, `unusableServer`, `unknownMember`.
  public init(_ text: String, server: String? = nil) throws(Refusal) {
    guard !text.utf8.contains(where: { $0 <= 0x20 || $0 >= 0x7F }) else { throw .notAURL }
    let address = text.prefixMatch(of: #/https?://[^/?#]+/#).map { String($0.output) } ?? ""
    let rest = text.dropFirst(address.count).prefix { $0 != "#" }
    let parts = rest.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
    let members = parts.count > 1 ? parts[1].split(separator: "&") : []
    if let place = parts.first, place.hasSuffix(Self.path),
      members.contains(where: { $0.hasPrefix("url=") })
    {
      guard server == nil else { throw .unusableServer }
      // A proxy that has the service below another path takes that away.
      base = address + place.dropLast(Self.path.count)
      let kept = members.filter { !$0.hasPrefix("expires=") && !$0.hasPrefix("signature=") }
      for member in kept {
        let name = String(member.prefix { $0 != "=" })
        guard Routes.viewMembers.contains(name.removingPercentEncoding ?? name) else {
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

  /// The URL with `expires` and `signature`.
  ///
  /// - Parameter expires: until when it is good, in whole seconds.
  /// - Throws: `noKey`.
  public func signed(
    by configuration: Configuration, expires: Date
  ) throws(Refusal) -> String {
    let signature = ViewSignature(keys: configuration.view.keys)
    let seconds = Int64(expires.timeIntervalSince1970)
    guard let query = signature.signed(path: Self.path, query: query, expires: seconds) else {
      throw .noKey
    }
    return "\(base)\(Self.path)?\(query)"
  }

  /// As the value of a query's member: all but RFC 3986's unreserved characters is percent-encoded.
  private static func encoded(_ text: String) -> String {
    let plain = CharacterSet(
      charactersIn: "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
    return text.addingPercentEncoding(withAllowedCharacters: plain) ?? text
  }
}
