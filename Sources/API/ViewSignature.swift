internal import Digests
internal import Foundation
internal import Jobs

/// Signs the URLs of views, and tells whether they were signed here.
///
/// A signature is the unpadded base64url of HMAC-SHA256 over path and query, as they stand in the request, without the
/// member `signature`. The member `expires` says in Unix seconds until when it is good.
public struct ViewSignature: Sendable {
  private let keys: [[UInt8]]

  /// - Parameter keys: newest first. The first one signs, each is taken.
  public init(keys: [[UInt8]]) { self.keys = keys }

  /// Whether there is a key to sign with.
  public var canSign: Bool { !keys.isEmpty }

  /// The query with `expires` and `signature` at its end; nil without a key.
  ///
  /// - Parameters:
  ///   - path: as it will stand in the request.
  ///   - query: the same; without those two members.
  ///   - expires: in Unix seconds.
  public func signed(path: String, query: String, expires: Int64) -> String? {
    guard let key = keys.first else { return nil }
    let query = (query.isEmpty ? "" : query + "&") + "expires=\(expires)"
    return "\(query)&signature=\(Self.signature(of: "\(path)?\(query)", by: key))"
  }

  /// - Returns: until when the URL is good.
  /// - Throws: `forbidden` unless path and query were signed by one of the keys, and for this moment.
  func check(path: String, query: String?, at moment: Timestamp) throws(Problem) -> Timestamp {
    let members = (query ?? "").split(separator: "&", omittingEmptySubsequences: false)
    let signatures = members.filter { $0.hasPrefix("signature=") }.map { $0.dropFirst(10) }
    let signed = members.filter { !$0.hasPrefix("signature=") }
    let times = signed.filter { $0.hasPrefix("expires=") }.map { $0.dropFirst(8) }
    guard signatures.count == 1, times.count == 1 else {
      throw Self.refusal("A view's URL needs expires and signature, each once.")
    }
    guard isSigned("\(path)?\(signed.joined(separator: "&"))", by: signatures[0]) else {
      throw Self.refusal("The signature is not one of this service's for this URL.")
    }
    // A signed text that long is no time.
    guard times[0].utf8.count <= 12, let seconds = Int64(times[0]), seconds >= 0 else {
      throw Self.refusal("expires is no time in Unix seconds.")
    }
    let expires = Timestamp(milliseconds: seconds * 1000)
    guard expires > moment else { throw Self.refusal("The URL has expired.") }
    return expires
  }

  /// Compares with every key's and every byte, so that the time taken tells nothing of either.
  private func isSigned(_ text: String, by signature: Substring) -> Bool {
    var found = false
    for key in keys {
      let expected = Self.signature(of: text, by: key).utf8
      guard expected.count == signature.utf8.count else { continue }
      let difference = zip(expected, signature.utf8).reduce(UInt8(0)) { $0 | ($1.0 ^ $1.1) }
      if difference == 0 { found = true }
    }
    return found
  }

  private static func signature(of text: String, by key: [UInt8]) -> String {
    let code = HMACSHA256.authenticationCode(for: text.utf8, key: key)
    return Data(code).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_")
      .replacing("=", with: "")
  }

  private static func refusal(_ detail: String) -> Problem { Problem(.forbidden, detail) }
}
