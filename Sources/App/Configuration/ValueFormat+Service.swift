internal import Jobs
internal import PostgreSQL
internal import Settings
internal import YAML

extension ValueFormat<String> {
  /// The URL of a PostgreSQL database, in libpq's format.
  static let database = text(
    "postgresql URL of a database", show: AddressText.hidingSecrets
  ) { text in
    let isOne = text.hasPrefix("postgresql://") || text.hasPrefix("postgres://")
    return isOne && PostgresJobStore.understands(text)
      ? nil : "is not the URL of a PostgreSQL database (postgresql://user@host/name)"
  }

  /// A `User-Agent`. `<version>` in it is replaced by the version of imagefetch.
  static let userAgent = ValueFormat("visible ASCII up to 256 characters", form: .text) { scalar in
    guard scalar.kind == .string, !scalar.text.isEmpty else { return .wrong("is not text") }
    let text = scalar.text.replacing("<version>", with: App.version)
    let isVisible = text.utf8.allSatisfy { (0x20...0x7E).contains($0) }
    guard isVisible, text.utf8.count <= 256, text.first != " ", text.last != " " else {
      return .wrong("is not visible ASCII up to 256 characters")
    }
    return .value(text)
  } show: {
    LineText.quoted($0)
  }
}

extension ValueFormat<WebhookSecret> {
  /// A webhook secret. It is never printed.
  static let webhookSecret = ValueFormat(takes, form: .text, isSecret: true) { node, complaints in
    if let secret = node.scalar.flatMap({ WebhookSecret($0.text) }) { return secret }
    complaints.append(Complaint(location: node.location, message: "is not \(takes)"))
    return nil
  } show: { _ in
    "hidden"
  }

  private static var takes: String { "whsec_ and 24…64 bytes in base64" }
}
