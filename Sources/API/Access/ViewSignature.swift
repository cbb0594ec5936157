internal import Digests
internal import Foundation
internal import Jobs

/// Signs the URLs of `GET /image` and verifies them.
///
/// A signature is the unpadded base64url of HMAC-SHA256 over the path and query as sent, without the parameter
/// `signature`. The parameter `expires` is the end of its validity in Unix seconds.
package struct ViewSignature: Sendable {
  private let keys: [[UInt8]]

  /// - Parameter keys: newest first. The first one signs; all of them verify.
  package init(keys: [[UInt8]]) { self.keys = keys }

  /// Whether there is a key to sign with.
  var canSign: Bool { !keys.isEmpty }

  /// Returns the query with `expires` and `signature` appended; nil if there is no key.
  ///
  /// - Parameters:
  ///   - path: the path as it will be sent.
  ///   - query: the query as it will be sent, without these two parameters.
  ///   - expires: in Unix seconds.
  package func signed(path: String, query: String, expires: Int64) -> String? {
    guard let key = keys.first else { return nil }
    let query = (query.isEmpty ? "" : query + "&") + "expires=\(expires)"
    return "\(query)&signature=\(Self.signature(of: "\(path)?\(query)", by: key))"
  }

  /// - Returns: the time when the URL expires.
  /// - Throws: `forbidden` if path and query have no valid signature, or the URL has expired.
  func check(path: String, query: String?, at moment: Timestamp) throws(Problem) -> Timestamp {
    let members = (query ?? "").split(separator: "&", omittingEmptySubsequences: false)
    let signatures = members.filter { $0.hasPrefix("signature=") }.map { $0.dropFirst(10) }
    let signed = members.filter { !$0.hasPrefix("signature=") }
    let times = signed.filter { $0.hasPrefix("expires=") }.map { $0.dropFirst(8) }
    guard signatures.count == 1, times.count == 1 else {
      throw Self.refusal("The URL must have expires and signature once each.")
    }
    guard isSigned("\(path)?\(signed.joined(separator: "&"))", by: signatures[0]) else {
      throw Self.refusal("The signature is not valid for this URL. Sign it with one of view.keys.")
    }
    // More than 12 digits can't be a time.
    guard times[0].utf8.count <= 12, let seconds = Int64(times[0]), seconds >= 0 else {
      throw Self.refusal("expires must be a time in Unix seconds.")
    }
    let expires = Timestamp(milliseconds: seconds * 1000)
    guard expires > moment else { throw Self.refusal("The URL has expired. Sign it again.") }
    return expires
  }

  /// Compares with every key and every byte, so that the duration reveals nothing about them.
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
