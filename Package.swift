// swift-tools-version: 6.2
import PackageDescription

/// `make lint` and CI turn warnings into errors. Other builds do not, because a newer compiler may have new warnings.
let strictness: [SwiftSetting] =
  Context.environment["WARNINGS_AS_ERRORS"] == "1" ? [.treatAllWarnings(as: .error)] : []

/// The commit, set by the Makefile and deploy/dist/build; absent in a build without git. The value becomes a C macro, so
/// only a-z, 0-9 and - are allowed.
let commit: [CSetting] =
  Context.environment["SOURCE_COMMIT"].flatMap { commit in
    let isPlain = commit.utf8.allSatisfy {
      (48...57).contains($0) || (97...122).contains($0) || $0 == 45
    }
    return isPlain && !commit.isEmpty ? [.define("SOURCE_COMMIT", to: commit)] : nil
  } ?? []

/// Compiler settings of every target. Globals of a manifest are initialized from top to bottom, so this must be defined
/// before the package; otherwise it would be empty without an error.
let house: [SwiftSetting] =
  strictness + [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
  ]

/// The folders of CCodecs, whose files include each other's headers by name alone.
let codecFolders: [CSetting] = [
  "avif", "gif", "heic", "ico", "jpeg", "jxl", "pixels", "png", "shared", "webp",
].map { .headerSearchPath($0) }

/// The parts of the dashboard's page, which the target joins.
let dashboard: [Resource] = [
  "dashboard.html", "dashboard.css", "words.js", "access.js", "order.js", "export.js", "address.js",
  "events.js",
  "jobs.js", "images.js", "card.js", "wall.js", "actions.js", "details.js", "submit.js",
  "chart.js",
  "glance.js", "batches.js", "main.js",
].map { .embedInCode("Page/\($0)") }

// Each target can import only its dependencies.
let package = Package(
  name: "imagefetch",
  products: [.executable(name: "imagefetch", targets: ["imagefetch"])],
  // Exact versions, so that the tested versions are the ones that are built.
  dependencies: [
    .package(url: "https://github.com/apple/swift-argument-parser", exact: "1.8.2"),
    .package(url: "https://github.com/apple/swift-collections", exact: "1.6.0"),
    .package(url: "https://github.com/apple/swift-http-types", exact: "1.8.0"),
    .package(url: "https://github.com/apple/swift-log", exact: "1.16.2"),
    .package(url: "https://github.com/apple/swift-metrics", exact: "2.13.0"),
    .package(url: "https://github.com/swift-server/swift-service-lifecycle", exact: "2.13.0"),
  ],
  targets: [
    .executableTarget(
      name: "imagefetch",
      dependencies: ["App", "Client", "Isolation", "Settings", .argumentParser, .unixSignals],
      swiftSettings: house),
    .target(
      name: "App",
      dependencies: [
        "API", "CBuild", "CMalloc", "Codec", "Contract", "Dashboard", "Digests", "Engine",
        "Executors", "Fetch", "HTTP", "Images", "Isolation", "Jobs", "PostgreSQL", "S3",
        "Settings", "SQL", "SQLite", "YAML", .log, .metrics, .unixSignals,
      ],
      swiftSettings: house),
    .target(
      name: "API",
      dependencies: [
        "Digests", "Executors", "HTTP", "Jobs", "Settings", "Waiting", .httpTypes, .log, .metrics,
      ],
      swiftSettings: house),
    .target(name: "Caching", swiftSettings: house),
    .target(
      name: "Jobs", dependencies: ["Caching", "Digests", "Settings", .deque, .hashTrees],
      resources: ["loading", "failure"].map {
        .embedInCode("Submission/Placeholders/\($0).png")
      }, swiftSettings: house),
    .target(
      name: "Engine",
      dependencies: ["Caching", "Jobs", "Settings", "Waiting", .deque, .log, .metrics],
      swiftSettings: house),
    .target(
      name: "HTTP", dependencies: ["CMicroHTTPD", "Settings", .httpTypes, .log, .metrics],
      swiftSettings: house),
    .target(
      name: "Fetch",
      dependencies: [
        "CCodings", "CCurl", "Executors", "Jobs", "Settings", "Waiting", .deque, .log, .metrics,
      ],
      swiftSettings: house),
    .target(name: "Client", dependencies: ["CCurl", "Digests", "Executors"], swiftSettings: house),
    .target(name: "Codec", dependencies: ["CCodecs", "Jobs"], swiftSettings: house),
    .target(
      name: "Isolation",
      dependencies: [
        "CIsolation", "CMalloc", "Codec", "Jobs", "Settings", .log, .metrics,
      ],
      swiftSettings: house),
    .target(
      name: "Images", dependencies: ["CLinux", "Digests", "Executors", "Jobs", .log],
      swiftSettings: house),
    .target(
      name: "S3",
      dependencies: ["Digests", "Executors", "Fetch", "Jobs", "Waiting", .log, .metrics],
      swiftSettings: house),
    .target(
      name: "SQL", dependencies: ["Executors", "Jobs", .log, .metrics],
      swiftSettings: house),
    .target(
      name: "SQLite", dependencies: ["CSQLite", "Executors", "Images", "Jobs", "SQL", .log],
      swiftSettings: house),
    .target(
      name: "PostgreSQL", dependencies: ["CPQ", "Executors", "Jobs", "SQL"],
      swiftSettings: house),
    .target(name: "Settings", dependencies: ["YAML"], swiftSettings: house),
    .target(name: "YAML", dependencies: ["CYAML"], swiftSettings: house),
    .target(
      name: "Contract", resources: [.embedInCode("openapi.yaml")], swiftSettings: house),
    .target(
      name: "Dashboard", dependencies: ["Digests"], resources: dashboard, swiftSettings: house),
    .target(name: "Digests", dependencies: ["CCrypto"], swiftSettings: house),
    .target(name: "Executors", dependencies: [.deque, .heap], swiftSettings: house),
    .target(name: "Waiting", dependencies: ["Jobs", .deque], swiftSettings: house),

    .systemLibrary(
      name: "CMicroHTTPD", pkgConfig: "libmicrohttpd", providers: [.apt(["libmicrohttpd-dev"])]),
    .systemLibrary(
      name: "CCurl", pkgConfig: "libcurl", providers: [.apt(["libcurl4-openssl-dev"])]),
    .systemLibrary(
      name: "CCodings", pkgConfig: "libbrotlidec", providers: [.apt(["libbrotli-dev"])]),
    .systemLibrary(name: "CCrypto", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"])]),
    .target(name: "CBuild", cSettings: commit),
    .target(
      name: "CIsolation", cSettings: [.unsafeFlags(["-O2", "-Wall", "-Wextra", "-Werror"])],
      linkerSettings: [.linkedLibrary("seccomp")]),
    .systemLibrary(name: "CLinux"),
    .systemLibrary(name: "CMalloc"),
    .systemLibrary(name: "CPQ", pkgConfig: "libpq", providers: [.apt(["libpq-dev"])]),
    .target(
      name: "CSQLite", cSettings: [.unsafeFlags(["-O2", "-Wall", "-Wextra", "-Werror"])],
      linkerSettings: [.linkedLibrary("sqlite3")]),
    .systemLibrary(name: "CYAML", pkgConfig: "yaml-0.1", providers: [.apt(["libyaml-dev"])]),
    .target(
      name: "CCodecs",
      cSettings: codecFolders + [.unsafeFlags(["-O2", "-Wall", "-Wextra", "-Werror"])],
      linkerSettings: [
        "avif", "de265", "jpeg", "jxl", "lcms2", "m", "png", "webp", "webpdemux", "webpmux",
        "z",
      ].map {
        .linkedLibrary($0)
      }),

    .executableTarget(
      name: "RenderBenchmark", dependencies: ["Codec", "Jobs"], path: "Benchmarks/render",
      swiftSettings: house),
    .executableTarget(
      name: "FetchBenchmark", dependencies: ["Fetch", "Jobs"], path: "Benchmarks/fetch",
      swiftSettings: house),

    .systemLibrary(
      name: "CCompressors", path: "Tests/CCompressors", pkgConfig: "libbrotlienc",
      providers: [.apt(["libbrotli-dev"])]),
    .target(
      name: "TestSupport",
      dependencies: [
        "CCompressors", "CSpawn", "Digests", "Fetch", "Jobs", "S3", "SQL", "SQLite", .log,
      ],
      path: "Tests/TestSupport", swiftSettings: house),
    .target(
      name: "CSpawn", path: "Tests/CSpawn",
      cSettings: [.unsafeFlags(["-Wall", "-Wextra", "-Werror"])]),
    .target(
      name: "CCounting", path: "Tests/CCounting",
      linkerSettings: [.linkedLibrary("sqlite3"), .linkedLibrary("microhttpd")]),
    .testTarget(name: "CachingTests", dependencies: ["Caching"], swiftSettings: house),
    .testTarget(name: "JobsTests", dependencies: ["Jobs", "TestSupport"], swiftSettings: house),
    .testTarget(
      name: "EngineTests",
      dependencies: [
        "Caching", "Engine", "Executors", "Images", "Jobs", "SQL", "SQLite", "TestSupport",
        "Waiting", .log,
      ],
      swiftSettings: house),
    .target(
      name: "CInterleavings", path: "Tests/CInterleavings",
      cSettings: [.unsafeFlags(["-Wall", "-Wextra", "-Werror"])]),
    .executableTarget(
      name: "Interleavings",
      dependencies: ["CInterleavings", "Engine", "Jobs", "SQL", "TestSupport", .log],
      path: "Tests/Interleavings", swiftSettings: house),
    .testTarget(
      name: "HTTPTests", dependencies: ["HTTP", "TestSupport", .httpTypes, .log],
      swiftSettings: house),
    .testTarget(
      name: "FetchTests", dependencies: ["CMalloc", "Fetch", "Jobs", "TestSupport"],
      swiftSettings: house),
    .testTarget(
      name: "ClientTests", dependencies: ["Client", "Jobs", "TestSupport"], swiftSettings: house),
    .testTarget(
      name: "CodecTests", dependencies: ["CCodecs", "Codec", "Jobs", "TestSupport"],
      swiftSettings: house),
    .testTarget(
      name: "StoreTests",
      dependencies: [
        "Caching", "Digests", "Fetch", "Images", "Jobs", "PostgreSQL", "S3", "SQL",
        "SQLite", "TestSupport", .log,
      ],
      swiftSettings: house),
    .testTarget(
      name: "S3Tests", dependencies: ["Digests", "Fetch", "Jobs", "S3", "TestSupport", .log],
      swiftSettings: house),
    .testTarget(
      name: "IsolationTests",
      dependencies: [
        "Codec", "HostileDecoder", "imagefetch", "Isolation", "Jobs", "TestSupport", .log,
      ],
      swiftSettings: house),
    .executableTarget(
      name: "HostileDecoder", dependencies: ["CIsolation"], path: "Tests/HostileDecoder",
      cSettings: [.unsafeFlags(["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"])]),
    .target(
      name: "CPlant", dependencies: ["CCodecs"], path: "Tests/CPlant",
      cSettings: [.unsafeFlags(["-Wall", "-Wextra", "-Werror"])]),
    .executableTarget(
      name: "PlantedService", dependencies: ["App", "CPlant", "Isolation"],
      path: "Tests/PlantedService", swiftSettings: house),
    .executableTarget(
      name: "FunctionTrace", path: "Tests/FunctionTrace",
      cSettings: [.unsafeFlags(["-O2", "-Wall", "-Wextra", "-Werror"])]),
    .testTarget(name: "DigestsTests", dependencies: ["Digests"], swiftSettings: house),
    .testTarget(name: "YAMLTests", dependencies: ["YAML"], swiftSettings: house),
    .testTarget(name: "ExecutorsTests", dependencies: ["Executors"], swiftSettings: house),
    .testTarget(name: "WaitingTests", dependencies: ["Jobs", "Waiting"], swiftSettings: house),
    .testTarget(
      name: "APITests",
      dependencies: [
        "API", "Digests", "HTTP", "Jobs", "TestSupport", "Waiting", "YAML", .httpTypes, .log,
      ],
      swiftSettings: house),
    .testTarget(
      name: "AppTests",
      dependencies: [
        "API", "App", "Caching", "CCounting", "Codec", "CPlant", "Digests", "Engine", "Executors",
        "Fetch", "FunctionTrace", "HTTP", "imagefetch", "Images", "Jobs", "PlantedService", "S3",
        "Settings", "SQL", "SQLite", "TestSupport", "YAML", .httpTypes, .log, .metrics,
      ],
      swiftSettings: house),
    .testTarget(
      name: "ConformanceTests", dependencies: ["Caching", "imagefetch", "TestSupport"],
      swiftSettings: house),
  ],
  swiftLanguageModes: [.v6]
)

// Fuzz/run builds this target with the sanitizer's main function. Otherwise it is compiled with the tests, so that it stays valid.
let fuzzed: [Target.Dependency] = [
  "API", "Caching", "Codec", "Fetch", "HTTP", "Isolation", "Jobs", "YAML", .httpTypes,
]
package.targets.append(
  Context.environment["FUZZ"] == "1"
    ? .executableTarget(
      name: "FuzzTargets", dependencies: fuzzed, path: "Fuzz/Swift",
      swiftSettings: house + [.unsafeFlags(["-parse-as-library"])])
    : .target(
      name: "FuzzTargets", dependencies: fuzzed, path: "Fuzz/Swift", swiftSettings: house))

// The image's build (see the Dockerfile) contains only the sources, so that a changed test does not rebuild the image.
if Context.environment["WITHOUT_TESTS"] == "1" {
  package.targets.removeAll { $0.type == .test || $0.path != nil }
}

// .ci/check-platforms lists the test targets that it runs. Other test targets and their helpers are not compiled there.
if let tests = Context.environment["ONLY_TESTS"]?.split(separator: ",").map(String.init) {
  let kept = Set(tests + ["CCompressors", "CSpawn", "HostileDecoder", "TestSupport"])
  package.targets.removeAll { !kept.contains($0.name) && ($0.type == .test || $0.path != nil) }
}

extension Target.Dependency {
  static let argumentParser = product(
    name: "ArgumentParser", package: "swift-argument-parser")
  static let deque = product(name: "DequeModule", package: "swift-collections")
  static let hashTrees = product(name: "HashTreeCollections", package: "swift-collections")
  static let heap = product(name: "HeapModule", package: "swift-collections")
  static let httpTypes = product(name: "HTTPTypes", package: "swift-http-types")
  static let log = product(name: "Logging", package: "swift-log")
  static let metrics = product(name: "Metrics", package: "swift-metrics")
  static let unixSignals = product(name: "UnixSignals", package: "swift-service-lifecycle")
}
