internal import Jobs

extension ImageFormat {
  /// As people write it.
  var name: String {
    switch self {
    case .jpeg, .png, .gif, .avif: rawValue.uppercased()
    case .webp: "WebP"
    }
  }
}
