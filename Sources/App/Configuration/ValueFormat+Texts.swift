internal import Jobs
internal import PostgreSQL
internal import YAML

extension ValueFormat<String> {
  /// An address to listen on.
  static let host = text("an IP address or localhost") { text in
    AddressText.isAddress(text) || text == "localhost" ? nil : "is not an IP address or localhost"
  }

  /// An address range.
  static let network = text("a CIDR") { AddressText.networkMistake($0) }

  /// A name, or `*.` and a name.
  static let hostPattern = text("a host name or *.name") { AddressText.hostPatternMistake($0) }

  /// A web origin, as browsers send it in `Origin`.
  static let origin = text("an origin such as https://example.org, or *") { text in
    AddressText.isOrigin(text) || text == "*"
      ? nil : "is not an origin (scheme, host and port only, in lower case)"
  }

  /// The URL of an egress proxy.
  static let proxy = text(
    "http or https URL of a proxy", show: AddressText.hidingCredentials
  ) { text in
    AddressText.isProxy(text) ? nil : "is not the URL of a proxy (http, https)"
  }

  /// The URL of a PostgreSQL database, in libpq's format.
  static let database = text(
    "postgresql URL of a database", show: AddressText.hidingSecrets
  ) { text in
    let isOne = text.hasPrefix("postgresql://") || text.hasPrefix("postgres://")
    return isOne && PostgresJobStore.understands(text)
      ? nil : "is not the URL of a PostgreSQL database (postgresql://user@host/name)"
  }

  /// A bucket of an object store and a key prefix.
  static let bucket = text("s3://bucket/prefix") { text in
    let form = #/s3://([^/]+)(/[!-~]{0,512})?/#
    // libcurl removes such parts from a path, so the request would not match its signature.
    let isPlain = !["/./", "/../"].contains { "\(text)/".contains($0) }
    guard let parts = text.wholeMatch(of: form)?.output, isPlain else {
      return "is not a bucket and prefix (s3://bucket/prefix)"
    }
    return isBucketName(parts.1)
      ? nil : "has no bucket name (3…63 of a-z 0-9 . -) after s3://"
  }

  /// Whether the text is a valid name for an S3 bucket.
  static func isBucketName(_ text: some StringProtocol) -> Bool {
    String(text).wholeMatch(of: #/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/#) != nil
  }

  /// The URL of an object store, a trace collector or another instance.
  static let endpoint = text("http or https URL without a path") { text in
    AddressText.isOrigin(text) ? nil : "is not a URL (scheme, host and port only, in lower case)"
  }

  /// A region of an object store.
  static let region = text("a region") { text in
    text.wholeMatch(of: #/[A-Za-z0-9-]{1,64}/#) != nil ? nil : "is not a region"
  }

  /// The name of an instance.
  static let name = text("visible ASCII up to 64 characters") { text in
    let isVisible = text.utf8.allSatisfy { (0x21...0x7E).contains($0) }
    return isVisible && (1...64).contains(text.utf8.count)
      ? nil : "is not visible ASCII up to 64 characters"
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

  /// A file that exists and can be read.
  static let file = text("a file") { FileText.fileMistake($0) }

  /// A folder that exists and can be read.
  static let folder = text("a folder") { FileText.folderMistake($0) }

  /// A folder that can be read, or that does not exist yet.
  static let newFolder = text("a folder, created if it does not exist") { path in
    FileText.exists(path) ? FileText.folderMistake(path) : nil
  }
}

extension ValueFormat<[UInt8]> {
  /// Secret bytes as hexadecimal digits. They are never printed.
  static func secretHex(_ count: ClosedRange<Int>) -> ValueFormat {
    let (fewest, most) = (2 * count.lowerBound, 2 * count.upperBound)
    let takes = (fewest == most ? "\(most)" : "\(fewest)…\(most)") + " hexadecimal digits"
    return ValueFormat(takes, form: .plain, isSecret: true) { node, complaints in
      if let text = node.scalar?.text, let bytes = HexText.bytes(text), count.contains(bytes.count)
      {
        return bytes
      }
      complaints.append(Complaint(location: node.location, message: "is not \(takes)"))
      return nil
    } show: { _ in
      "hidden"
    }
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
