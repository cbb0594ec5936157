internal import YAML

extension ValueFormat<String> {
  /// An address to listen on.
  package static let host = text("an IP address or localhost") { text in
    AddressText.isAddress(text) || text == "localhost" ? nil : "is not an IP address or localhost"
  }

  /// An address range.
  package static let network = text("a CIDR") { AddressText.networkMistake($0) }

  /// A name, or `*.` and a name.
  package static let hostPattern = text("a host name or *.name") {
    AddressText.hostPatternMistake($0)
  }

  /// A web origin, as browsers send it in `Origin`.
  package static let origin = text("an origin such as https://example.org, or *") { text in
    AddressText.isOrigin(text) || text == "*"
      ? nil : "is not an origin (scheme, host and port only, in lower case)"
  }

  /// The URL of an egress proxy.
  package static let proxy = text(
    "http or https URL of a proxy", show: AddressText.hidingCredentials
  ) { text in
    AddressText.isProxy(text) ? nil : "is not the URL of a proxy (http, https)"
  }

  /// A bucket of an object store and a key prefix.
  package static let bucket = text("s3://bucket/prefix") { text in
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
  package static func isBucketName(_ text: some StringProtocol) -> Bool {
    String(text).wholeMatch(of: #/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/#) != nil
  }

  /// The URL of an object store or a trace collector.
  package static let endpoint = text("http or https URL without a path") { text in
    AddressText.isOrigin(text) ? nil : "is not a URL (scheme, host and port only, in lower case)"
  }

  /// A region of an object store.
  package static let region = text("a region") { text in
    text.wholeMatch(of: #/[A-Za-z0-9-]{1,64}/#) != nil ? nil : "is not a region"
  }

  /// The name of an instance.
  package static let name = text("visible ASCII up to 64 characters") { text in
    let isVisible = text.utf8.allSatisfy { (0x21...0x7E).contains($0) }
    return isVisible && (1...64).contains(text.utf8.count)
      ? nil : "is not visible ASCII up to 64 characters"
  }

  /// A file that exists and can be read.
  package static let file = text("a file") { FileText.fileMistake($0) }

  /// A folder that exists and can be read.
  package static let folder = text("a folder") { FileText.folderMistake($0) }

  /// A folder that can be read, or that does not exist yet.
  package static let newFolder = text("a folder, created if it does not exist") { path in
    FileText.exists(path) ? FileText.folderMistake(path) : nil
  }
}

extension ValueFormat<[UInt8]> {
  /// Secret bytes as hexadecimal digits. They are never printed.
  package static func secretHex(_ count: ClosedRange<Int>) -> ValueFormat {
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
