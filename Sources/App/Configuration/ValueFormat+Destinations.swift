internal import API
internal import Jobs
internal import PostgreSQL
internal import Settings
internal import YAML

extension ValueFormat<[Configuration.Destination]> {
  /// `destinations`: a mapping from names to buckets.
  static let destinations = ValueFormat(
    "a mapping, each name to endpoint, region, bucket, prefix, path_style, access_key_file, secret_key_file and owners",
    form: .yaml
  ) { node, complaints in
    if node.scalar?.kind == .null { return [] }
    guard let pairs = node.mapping else {
      complaints.append(
        Complaint(location: node.location, message: "is not a mapping of names to buckets"))
      return nil
    }
    let before = complaints.count
    let destinations = pairs.compactMap { pair in
      destination(pair.key, pair.value, &complaints)
    }
    return complaints.count == before ? destinations : nil
  } show: { destinations in
    destinations.isEmpty
      ? "{}" : "{ " + destinations.map(shown).joined(separator: ", ") + " }"
  }

  private static var members: [String] {
    [
      "endpoint", "region", "bucket", "prefix", "path_style", "access_key_file", "secret_key_file",
      "owners",
    ]
  }

  private static func destination(
    _ name: String, _ node: Node, _ complaints: inout [Complaint]
  ) -> Configuration.Destination? {
    let before = complaints.count
    func complain(_ member: String?, _ message: String, _ complaints: inout [Complaint]) {
      let inner = ".\(name)" + (member.map { ".\($0)" } ?? "")
      complaints.append(Complaint(location: node.location, inner: inner, message: message))
    }
    let isFit =
      1...64 ~= name.utf8.count
      && name.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || "._-".contains($0)) }
    if !isFit { complain(nil, "a name is 1…64 of A-Z a-z 0-9 . _ -", &complaints) }
    guard let pairs = node.mapping else {
      complain(nil, "is not an entry with bucket and other keys", &complaints)
      return nil
    }
    for pair in pairs where !members.contains(pair.key) {
      complain(
        pair.key, "unknown key\(Suggestion.text(for: pair.key, among: members))", &complaints)
    }
    func read<Member>(
      _ member: String, _ format: ValueFormat<Member>, _ complaints: inout [Complaint]
    ) -> Member? {
      guard let value = node[member] else { return nil }
      var own: [Complaint] = []
      let result = format.read(value, &own)
      complaints += own.map {
        Complaint(
          location: $0.location, inner: ".\(name).\(member)" + $0.inner, message: $0.message)
      }
      return result
    }
    let bucket = read("bucket", ValueFormat<String>.bucketName, &complaints)
    if node["bucket"] == nil { complain("bucket", "is missing", &complaints) }
    var destination = Configuration.Destination(name: name, bucket: bucket ?? "")
    destination.endpoint = read("endpoint", ValueFormat<String>.endpoint, &complaints)
    destination.region = read("region", ValueFormat<String>.region, &complaints) ?? "us-east-1"
    destination.prefix = read("prefix", ValueFormat<String>.keyPrefix, &complaints) ?? ""
    destination.isPathStyle = read("path_style", ValueFormat<Bool>.boolean, &complaints) ?? true
    destination.owners = read(
      "owners", ValueFormat<[String]>.list(.tokenName, minimum: 1), &complaints)
    let access = read("access_key_file", ValueFormat<String>.file, &complaints)
    let secret = read("secret_key_file", ValueFormat<String>.file, &complaints)
    if let access, let secret {
      destination.keyFiles = Configuration.KeyFiles(access: access, secret: secret)
    } else if (node["access_key_file"] == nil) != (node["secret_key_file"] == nil) {
      complain(nil, "needs both access_key_file and secret_key_file, or neither", &complaints)
    }
    return complaints.count == before ? destination : nil
  }

  private static func shown(_ destination: Configuration.Destination) -> String {
    let text = ValueFormat<String>.file.show
    var members: [String] = []
    if let endpoint = destination.endpoint { members.append("endpoint: \(text(endpoint))") }
    members.append("region: \(text(destination.region))")
    members.append("bucket: \(text(destination.bucket))")
    if !destination.prefix.isEmpty { members.append("prefix: \(text(destination.prefix))") }
    members.append("path_style: \(destination.isPathStyle)")
    if let files = destination.keyFiles {
      members.append("access_key_file: \(text(files.access))")
      members.append("secret_key_file: \(text(files.secret))")
    }
    if let owners = destination.owners {
      members.append("owners: " + ValueFormat<[String]>.list(.tokenName).show(owners))
    }
    return "\(destination.name): { \(members.joined(separator: ", ")) }"
  }
}

extension ValueFormat<String> {
  /// The name of an S3 bucket.
  fileprivate static let bucketName = text("a bucket name") { text in
    isBucketName(text) ? nil : "is not a bucket name"
  }

  /// The prefix of object keys.
  fileprivate static let keyPrefix = text("a key prefix") { text in
    // libcurl removes such parts from a path, so the request would not match its signature.
    let isPlain =
      !["/./", "/../", "//"].contains {
        "/\(text)\(text.hasSuffix("/") ? "" : "/")".contains($0)
      }
    return text.wholeMatch(of: #/[!-~]{1,512}/#) != nil && isPlain && !text.hasPrefix("/")
      ? nil : "is not a key prefix (visible ASCII, without empty parts, . and ..)"
  }
}

extension ValueFormat<String> {
  /// The URL of a PostgreSQL database, in libpq's format.
  static let database = text(
    "postgresql URL of a database", show: AddressText.hidingSecrets
  ) { text in
    let isOne = text.hasPrefix("postgresql://") || text.hasPrefix("postgres://")
    return isOne && PostgresDatabase.understands(text)
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
