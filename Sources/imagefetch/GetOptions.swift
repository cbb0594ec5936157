internal import App
internal import ArgumentParser
package import Client
internal import Foundation

/// The options that select the service.
struct ServiceOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "The URL of a running service; by default one runs in this process.", valueName: "url"))
  var server: String?

  @Option(
    help: ArgumentHelp(
      "A file with the service's token; by default the variable IMAGEFETCH_TOKEN.",
      valueName: "file"))
  var tokenFile: String?

  @Option(
    help: ArgumentHelp("The configuration file of the service in this process.", valueName: "file"))
  var config: String?

  @Option(
    name: .customLong("allow-network"),
    help: ArgumentHelp(
      "Allow a blocked network such as 127.0.0.1/32, on every port; may be repeated.",
      valueName: "cidr"))
  var networks: [String] = []

  @Flag(help: "Allow loopback and private networks, on every port.")
  var allowPrivate = false

  func validate() throws {
    if server == nil, tokenFile != nil { throw ValidationError("--token-file needs --server.") }
    if let server {
      guard networks.isEmpty, !allowPrivate else {
        throw ValidationError("--allow-network and --allow-private cannot be used with --server.")
      }
      if config != nil { throw ValidationError("--config cannot be used with --server.") }
      if ServiceAddress(server, token: nil) == nil {
        throw ValidationError(
          "'\(server)' is not the URL of a service, such as https://images.example:8080.")
      }
    }
  }

  /// The address of the service; nil for the one in this process.
  func address() throws(OperatorMistakes) -> ServiceAddress? {
    guard let server else { return nil }
    return ServiceAddress(server, token: try token())
  }

  /// The configuration of the service in this process.
  func configuration() throws(OperatorMistakes) -> App.Configuration {
    // server.host may be public, as in the container, and would then require tokens. This service listens on loopback only.
    var flags: [App.Configuration.Flag] = [
      .init(name: "get", key: "server.host", value: "127.0.0.1")
    ]
    let allowed = networks + (allowPrivate ? privateNetworks : [])
    if !allowed.isEmpty { flags += networkFlags(allowed, by: "--allow-network") }
    return try loadConfiguration(from: config, flags: flags)
  }

  private func token() throws(OperatorMistakes) -> String? {
    let variable = App.Configuration.tokenVariable
    let given: String
    if let tokenFile {
      guard let handle = FileHandle(forReadingAtPath: tokenFile),
        let data = try? handle.read(upToCount: 8192)
      else { throw OperatorMistakes(lines: ["--token-file: \"\(tokenFile)\" can't be read"]) }
      given = String(decoding: data, as: UTF8.self)
    } else if let text = ProcessInfo.processInfo.environment[variable], !text.isEmpty {
      given = text
    } else {
      return nil
    }
    let token = given.trimmingCharacters(in: .whitespacesAndNewlines)
    guard ServiceAddress.isToken(token) else {
      let place = tokenFile.map { "--token-file: \"\($0)\"" } ?? variable + ":"
      throw OperatorMistakes(lines: ["\(place) contains no token"])
    }
    return token
  }
}

/// Loopback and the private networks of RFC 1918 and RFC 4193. Link-local addresses are never allowed, because clouds
/// publish credentials there.
let privateNetworks = [
  "127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7",
]

/// Flags that allow fetching from these networks, on every port.
func networkFlags(_ networks: [String], by name: String) -> [App.Configuration.Flag] {
  [
    .init(name: name, key: "fetch.allow_networks", value: networks.joined(separator: ",")),
    .init(name: name, key: "fetch.allow_ports", value: ""),
  ]
}

/// Flags that allow webhook messages to these networks, also without TLS.
func receiverFlags(_ networks: [String], by name: String) -> [App.Configuration.Flag] {
  [
    .init(name: name, key: "webhooks.allow_networks", value: networks.joined(separator: ",")),
    .init(name: name, key: "webhooks.allow_ports", value: ""),
    .init(name: name, key: "webhooks.allow_http", value: "true"),
  ]
}

/// The options of a variant.
struct VariantOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp("The width in pixels.", valueName: "px"),
    transform: number(in: 1...1_000_000))
  var width: Int?

  @Option(
    help: ArgumentHelp("The height in pixels.", valueName: "px"),
    transform: number(in: 1...1_000_000))
  var height: Int?

  @Option(help: "How the image is fitted into width and height.")
  var fit: ImageOptions.Fit?

  @Option(help: "The format; by default the image's own.")
  var format: ImageOptions.Format?

  @Option(
    help: ArgumentHelp("The quality, 1 to 100.", valueName: "n"), transform: number(in: 1...100))
  var quality: Int?

  @Option(
    help: ArgumentHelp("The color behind transparent pixels, such as ff8800.", valueName: "rrggbb"),
    transform: { text in
      let digits = text.hasPrefix("#") ? text.dropFirst() : text[...]
      guard digits.utf8.count == 6, digits.allSatisfy({ $0.isASCII && $0.isHexDigit }) else {
        throw ValidationError("Must be six hexadecimal digits such as ff8800.")
      }
      return String(digits)
    })
  var background: String?

  @Option(
    help: ArgumentHelp("The pixel ratio, 1 to 4; multiplies width and height.", valueName: "n"),
    transform: { text in
      guard let number = Double(text), 1...4 ~= number else {
        throw ValidationError("Must be a number from 1 to 4.")
      }
      return number
    })
  var dpr: Double?

  @Flag(help: "Keep all frames of an animated GIF or WebP; writes WebP.")
  var animated = false

  func validate() throws {
    if animated, let format, format != .webp {
      throw ValidationError("Animations can be written as webp only.")
    }
  }

  func add(to options: inout ImageOptions) {
    (options.width, options.height, options.fit) = (width, height, fit)
    (options.format, options.quality) = (format, quality)
    (options.background, options.dpr, options.isAnimated) = (background, dpr, animated)
  }
}

/// The options of each job.
struct JobOptions: ParsableArguments {
  @Option(help: "The cache mode.")
  var cache: ImageOptions.CacheMode?

  @Option(help: "The priority of the jobs.")
  var priority: ImageOptions.Priority?

  @Option(
    name: .customLong("header"),
    help: ArgumentHelp(
      "A header field for the origins; may be repeated.", valueName: "'Name: value'"),
    transform: { text in
      guard let field = ImageOptions.HeaderField(text) else {
        throw ValidationError("Must be a header field such as 'Accept-Language: en'.")
      }
      return field
    })
  var headers: [ImageOptions.HeaderField] = []

  @Option(
    name: .customLong("tag"),
    help: ArgumentHelp("A tag of the jobs; may be repeated.", valueName: "text"),
    transform: { text in
      guard 1...64 ~= text.unicodeScalars.count else {
        throw ValidationError("Must have 1 to 64 characters.")
      }
      return text
    })
  var tags: [String] = []

  @Option(
    help: ArgumentHelp(
      "Jobs (with a list and --server: downloads) at the same time: 1 to 256; by default 32.",
      valueName: "n"),
    transform: number(in: 1...256))
  var parallel = 32

  func validate() throws {
    guard tags.count <= 16 else { throw ValidationError("A job has at most 16 tags.") }
  }

  var options: ImageOptions {
    var options = ImageOptions()
    (options.cache, options.priority) = (cache, priority)
    (options.headers, options.tags) = (headers, tags)
    return options
  }
}

private func number(in range: ClosedRange<Int>) -> @Sendable (String) throws -> Int {
  { text in
    guard let number = Int(text), range ~= number else {
      throw ValidationError("Must be an integer from \(range.lowerBound) to \(range.upperBound).")
    }
    return number
  }
}

extension ImageOptions.Fit: ExpressibleByArgument {}
extension ImageOptions.Format: ExpressibleByArgument {}
extension ImageOptions.CacheMode: ExpressibleByArgument {}
extension ImageOptions.Priority: ExpressibleByArgument {}
