internal import Digests
internal import FoundationEssentials

/// A secret that messages are signed with, as Standard Webhooks 1.0 has them.
public struct WebhookSecret: Sendable, Equatable {
  private let key: [UInt8]

  /// Reads `whsec_` and 24 to 64 bytes in base64; nil for anything else.
  public init?(_ text: String) {
    let prefix = "whsec_"
    guard text.hasPrefix(prefix),
      let bytes = Data(base64Encoded: String(text.dropFirst(prefix.count))),
      24...64 ~= bytes.count
    else { return nil }
    key = Array(bytes)
  }

  /// A message's signature.
  /// - Parameter moment: in seconds, as `webhook-timestamp` has it.
  package func signature(of body: [UInt8], id: String, moment: Int64) -> String {
    let code = HMACSHA256.authenticationCode(for: Array("\(id).\(moment).".utf8) + body, key: key)
    return "v1,\(Data(code).base64EncodedString())"
  }
}

extension WebhookMessage {
  /// The header fields that one try is sent with.
  ///
  /// - Parameters:
  ///   - moment: when it is sent.
  ///   - secrets: a signature for each; none: it isn't signed.
  package func fields(
    for body: [UInt8], at moment: Timestamp, signedWith secrets: [WebhookSecret]
  ) -> [HeaderField] {
    let (id, seconds) = (id.description, moment.milliseconds / 1_000)
    var fields = [
      HeaderField(name: "webhook-id", value: id),
      HeaderField(name: "webhook-timestamp", value: "\(seconds)"),
    ]
    if !secrets.isEmpty {
      let signatures = secrets.map { $0.signature(of: body, id: id, moment: seconds) }
      fields.append(
        HeaderField(name: "webhook-signature", value: signatures.joined(separator: " ")))
    }
    return fields
  }
}
