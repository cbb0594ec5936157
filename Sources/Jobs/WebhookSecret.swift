internal import Crypto
internal import FoundationEssentials

/// A secret that messages are signed with, as Standard Webhooks 1.0 has them.
public struct WebhookSecret: Sendable, Equatable {
  private let key: SymmetricKey

  /// Reads `whsec_` and 24 to 64 bytes in base64; nil for anything else.
  public init?(_ text: String) {
    let prefix = "whsec_"
    guard text.hasPrefix(prefix),
      let bytes = Data(base64Encoded: String(text.dropFirst(prefix.count))),
      24...64 ~= bytes.count
    else { return nil }
    key = SymmetricKey(data: bytes)
  }

  /// A message's signature.
  /// - Parameter moment: in seconds, as `webhook-timestamp` has it.
  package func signature(of body: [UInt8], id: String, moment: Int64) -> String {
    var hmac = HMAC<SHA256>(key: key)
    hmac.update(data: Array("\(id).\(moment).".utf8))
    hmac.update(data: body)
    return "v1,\(Data(hmac.finalize()).base64EncodedString())"
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
