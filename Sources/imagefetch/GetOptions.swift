internal import App
public import ArgumentParser
public import Client
internal import Foundation

/// Which service fetches.
struct ServiceOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp("A running service; without, one runs in this process.", valueName: "url"))
  var server: String?

  @Option(
    help: ArgumentHelp(
      "The service's token; else the variable IMAGEFETCH_TOKEN is.", valueName: "file"))
  var tokenFile: String?

  @Option(
    help: ArgumentHelp("The configuration of the service in this process.", valueName: "file"))
  var config: String?

  @Option(
    name: .customLong("allow-network"),
    help: ArgumentHelp(
      "A network that would be blocked, such as 127.0.0.1/32, on every port; may be repeated.",
      valueName: "cidr"))
  var networks: [String] = []

  @Flag(help: "This machine's and private networks, on every port.")
  var allowPrivate = false

  func validate() throws {
    if server == nil, tokenFile != nil { throw ValidationError("--token-file is for --server.") }
    if let server {
      guard networks.isEmpty, !allowPrivate else {
        throw ValidationError("Which networks are allowed, the service at --server decides itself.")
      }
      if config != nil { throw ValidationError("--config is for the service in this process.") }
      if ServiceAddress(server, token: nil) == nil {
        throw ValidationError(
          "'\(server)' is no service's URL, such as https://images.example:8080.")
      }
    }
  }

  /// Where the service is; nil for the one in this process.
  func address() throws(OperatorMistakes) -> ServiceAddress? {
    guard let server else { return nil }
    return ServiceAddress(server, token: try token())
  }

  /// What the service in this process goes by.
  func configuration() throws(OperatorMistakes) -> App.Configuration {
    // Where serve would listen, as the container's variables say, needs tokens that this has no use for.
    var flags: [App.Configuration.Flag] = [
      .init(name: "get", key: "server.host", value: "127.0.0.1")
    ]
    let allowed = networks + (allowPrivate ? privateNetworks : [])
    if !allowed.isEmpty { flags += openingNetworks(allowed, by: "--allow-network") }
    return try loaded(from: config, flags: flags)
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
      throw OperatorMistakes(lines: ["\(place) holds no token"])
    }
    return token
  }
}

/// Loopback and what RFC 1918 and RFC 4193 set apart; never link-local, where clouds keep their secrets.
let privateNetworks = [
  "127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7",
]

/// Flags that take networks out of the block list, on every port.
func openingNetworks(_ networks: [String], by name: String) -> [App.Configuration.Flag] {
  [
    .init(name: name, key: "fetch.allow_networks", value: networks.joined(separator: ",")),
    .init(name: name, key: "fetch.allow_ports", value: ""),
  ]
}

/// Flags that let messages go to such networks, without TLS too.
func openingReceivers(_ networks: [String], by name: String) -> [App.Configuration.Flag] {
  [
    .init(name: name, key: "webhooks.allow_networks", value: networks.joined(separator: ",")),
    .init(name: name, key: "webhooks.allow_ports", value: ""),
    .init(name: name, key: "webhooks.allow_http", value: "true"),
  ]
}

/// The query of variants.
struct VariantOptions: ParsableArguments {
  @Option(help: ArgumentHelp("In pixels.", valueName: "px"), transform: number(in: 1...1_000_000))
  var width: Int?

  @Option(help: ArgumentHelp("In pixels.", valueName: "px"), transform: number(in: 1...1_000_000))
  var height: Int?

  @Option(help: "How width and height are met.")
  var fit: ImageOptions.Fit?

  @Option(help: "Another format than the image's own.")
  var format: ImageOptions.Format?

  @Option(help: ArgumentHelp("1 to 100.", valueName: "n"), transform: number(in: 1...100))
  var quality: Int?

  @Option(
    help: ArgumentHelp("Behind what is transparent, such as ff8800.", valueName: "rrggbb"),
    transform: { text in
      let digits = text.hasPrefix("#") ? text.dropFirst() : text[...]
      guard digits.utf8.count == 6, digits.allSatisfy({ $0.isASCII && $0.isHexDigit }) else {
        throw ValidationError("Must be six hexadecimal digits such as ff8800.")
      }
      return String(digits)
    })
  var background: String?

  @Option(
    help: ArgumentHelp("1 to 4, multiplies width and height.", valueName: "n"),
    transform: { text in
      guard let number = Double(text), 1...4 ~= number else {
        throw ValidationError("Must be a number from 1 to 4.")
      }
      return number
    })
  var dpr: Double?

  @Flag(help: "All pictures of an animated GIF or WebP, as WebP.")
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

/// What each job is submitted with.
struct JobOptions: ParsableArguments {
  @Option(help: "How the cache is used.")
  var cache: ImageOptions.CacheMode?

  @Option(help: "Whose turn comes first.")
  var priority: ImageOptions.Priority?

  @Option(
    name: .customLong("header"),
    help: ArgumentHelp("A field for the origins; may be repeated.", valueName: "'Name: value'"),
    transform: { text in
      guard let field = ImageOptions.HeaderField(text) else {
        throw ValidationError("It is a header field, such as 'Accept-Language: en'.")
      }
      return field
    })
  var headers: [ImageOptions.HeaderField] = []

  @Option(
    name: .customLong("tag"),
    help: ArgumentHelp("A label of the jobs; may be repeated.", valueName: "text"),
    transform: { text in
      guard 1...64 ~= text.unicodeScalars.count else {
        throw ValidationError("It has 1 to 64 characters.")
      }
      return text
    })
  var tags: [String] = []

  @Option(
    help: ArgumentHelp(
      "Jobs at once, or of a list at --server images saved at once: 1 to 256; by default 32.",
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
