internal import Digests
internal import FoundationEssentials

/// A secret for signing messages, in the format of Standard Webhooks 1.0.
package struct WebhookSecret: Sendable, Equatable {
  private let key: [UInt8]

  /// Parses `whsec_` followed by 24 to 64 bytes in base64; nil for anything else.
  package init?(_ text: String) {
    let prefix = "whsec_"
    guard text.hasPrefix(prefix),
      let bytes = Data(base64Encoded: String(text.dropFirst(prefix.count))),
      24...64 ~= bytes.count
    else { return nil }
    key = Array(bytes)
  }

  /// Returns the signature of a message.
  /// - Parameter moment: The value of `webhook-timestamp`, in seconds.
  package func signature(of body: [UInt8], id: String, moment: Int64) -> String {
    let code = HMACSHA256.authenticationCode(for: Array("\(id).\(moment).".utf8) + body, key: key)
    return "v1,\(Data(code).base64EncodedString())"
  }
}

extension WebhookMessage {
  /// Returns the header fields for one attempt.
  ///
  /// - Parameters:
  ///   - moment: When the message is sent.
  ///   - secrets: One signature is made with each; without secrets the message is not signed.
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
