internal import Digests
internal import Foundation
internal import Jobs

/// The credentials for an object store.
package struct S3Credentials: Sendable, Equatable {
  /// The access key's id.
  var accessKey: String
  /// The secret access key.
  var secretKey: String
  /// The session token of temporary credentials.
  var sessionToken: String?

  package init(accessKey: String, secretKey: String, sessionToken: String? = nil) {
    self.accessKey = accessKey
    self.secretKey = secretKey
    self.sessionToken = sessionToken
  }
}

/// Computes AWS Signature Version 4 of a request, for its `Authorization` field.
struct Signature {
  var region: String
  var service = "s3"
  var credentials: S3Credentials

  /// A request to sign: fields in any order; the path and the query are percent-encoded already.
  struct Request {
    var method: String
    var path: String
    var query: [(name: String, value: String)] = []
    var fields: [HeaderField]
    /// The SHA-256 of the content in hex.
    var contentDigest: String
  }

  /// Returns the value of `Authorization`. All given fields are signed; `Host` and `x-amz-date`
  /// must be among them.
  ///
  /// - Parameter date: the value of `x-amz-date`.
  func authorization(for request: Request, at date: String) -> String {
    let fields = request.fields.map { (name: $0.name.lowercased(), value: Self.trimmed($0.value)) }
      .sorted { $0.name < $1.name }
    let names = fields.map(\.name).joined(separator: ";")
    let query = request.query.sorted { ($0.name, $0.value) < ($1.name, $1.value) }
    let canonical = [
      request.method, request.path, query.map { "\($0.name)=\($0.value)" }.joined(separator: "&"),
      fields.map { "\($0.name):\($0.value)\n" }.joined(), names, request.contentDigest,
    ].joined(separator: "\n")
    let day = String(date.prefix(8))
    let scope = "\(day)/\(region)/\(service)/aws4_request"
    let text = ["AWS4-HMAC-SHA256", date, scope, hex(of: SHA256.hash(data: canonical.utf8))]
      .joined(separator: "\n")
    let steps = [day, region, service, "aws4_request", text]
    let signature = steps.reduce(Array("AWS4\(credentials.secretKey)".utf8)) { key, step in
      HMACSHA256.authenticationCode(for: step.utf8, key: key)
    }
    return "AWS4-HMAC-SHA256 Credential=\(credentials.accessKey)/\(scope),"
      + "SignedHeaders=\(names),Signature=\(hex(of: signature))"
  }

  /// Formats a time for `x-amz-date`.
  static func date(_ moment: Timestamp) -> String {
    var seconds = time_t(moment.milliseconds / 1_000)
    var parts = tm()
    gmtime_r(&seconds, &parts)
    return String(
      format: "%04d%02d%02dT%02d%02d%02dZ", parts.tm_year + 1_900, parts.tm_mon + 1, parts.tm_mday,
      parts.tm_hour, parts.tm_min, parts.tm_sec)
  }

  /// Percent-encodes everything except RFC 3986's unreserved characters.
  /// - Parameter keepsSlashes: whether to keep slashes, for a path.
  static func encoded(_ text: String, keepsSlashes: Bool = false) -> String {
    var encoded = ""
    for byte in text.utf8 {
      let scalar = Unicode.Scalar(byte)
      if isUnreserved(byte) || keepsSlashes && scalar == "/" {
        encoded.unicodeScalars.append(scalar)
      } else {
        encoded += "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
      }
    }
    return encoded
  }

  private static func isUnreserved(_ byte: UInt8) -> Bool {
    switch Unicode.Scalar(byte) {
    case "a"..."z", "A"..."Z", "0"..."9", "-", ".", "_", "~": true
    default: false
    }
  }

  /// Removes spaces at both ends and merges repeated ones.
  private static func trimmed(_ value: String) -> String {
    value.split(separator: " ").joined(separator: " ")
  }
}

/// Lower-case hex digits.
func hex(of bytes: some Sequence<UInt8>) -> String {
  bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
}
